#pragma once
// One training step on one device: how long it takes, what it holds, where the time goes, and what
// its matrix products, its attention and its optimizer would take by themselves.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/model/model.h"
#include "runtime/comm/group.h"
#include "runtime/parallel/site.h"

namespace braid::measure {

struct StepOptions {
  std::int64_t batch = 1;
  int micro_batches = 1;
  Recompute recompute = Recompute::none;
  Precision precision = Precision::bf16;
  Precision gradients = Precision::fp32;
  int warm_up = 4;
  int steps = 8;
  bool capture = true;  // see train::WorkerOptions
  // The signal that asks for the end after the step under way; 0: none. Empty: never.
  std::function<int()> stop_signal = {};
};

// One operator's part of a step.
struct OperatorTime {
  std::string name;
  int calls = 0;
  double seconds = 0;
};

// What the vendor's best kernels take for the same work, each by itself: no step is faster that
// leaves nothing out.
struct StepLimit {
  double products = 0, attention = 0, optimizer = 0;
  double seconds() const { return products + attention + optimizer; }
};

struct StepTimes {
  double seconds = 0;  // the median of the steps
  double fastest = 0, slowest = 0;
  std::vector<double> losses;           // of all steps, warm-up too
  std::optional<std::int64_t> peak;     // bytes
  double flops = 0;                     // of the model, one step
  std::vector<OperatorTime> operators;  // of one step that is timed inside, slowest first
  double timed_seconds = 0;             // of that step
  StepLimit limit;
};

// Trains on random tokens or images. The world has one rank. Throws Stopped when it was asked to
// end.
StepTimes time_step(const Model& model, comm::Group& world, at::Device device,
                    const StepOptions& options);

// Bytes that the usual AdamW moves for one parameter: reads gradient, master and two moments,
// writes master, moments and the bf16 copy.
inline constexpr double kUpdateBytes = 4 + 4 + 8 + 8 + 4 + 2;

}  // namespace braid::measure
