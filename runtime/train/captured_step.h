#pragma once
// The steady step as one launch: after some steps one is shown to the GPU as a graph, which the
// following steps replay.

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/ops/graph.h"

namespace braid::train {

class CapturedStep {
 public:
  // `why_not` is empty where nothing that a step launches differs from one step to the next; else
  // every step is launched operator by operator, and on a GPU the reason is noted.
  CapturedStep(c10::Device device, const std::string& why_not);

  // Takes a step. `play` launches all of it; `abandon` undoes what a play left behind that failed
  // half-way, and has run nothing.
  void run(const std::function<void()>& play, const std::function<void()>& abandon);
  // Steps that were one launch.
  std::int64_t replayed() const { return replayed_; }

 private:
  // Whether somebody looks into the step.
  static bool is_watched();

  c10::Device device_;
  bool captures_;
  int plain_steps_ = 0;
  std::int64_t replayed_ = 0;
  ops::Graph graph_;
};

}  // namespace braid::train
