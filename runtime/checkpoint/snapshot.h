#pragma once
// A rank's part of a checkpoint in host memory, as it was after a step.

#include <cstdint>
#include <vector>

#include "planner/model/model.h"
#include "runtime/models/model.h"
#include "runtime/ops/host_copy.h"
#include "runtime/parallel/layout.h"

namespace braid::checkpoint {

// Elements `range` of one flat buffer: of all ranks that hold them, this one saves them. The
// tensors are flat host memory over the range.
struct SavedRange {
  int layer = 0;  // of the model
  const parallel::Parameters* parameters = nullptr;
  const parallel::FlatBuffer* buffer = nullptr;
  parallel::Segment range;
  at::Tensor weights, low_bits;  // the latter undefined where weights are the master
  at::Tensor first_moment, second_moment;

  // The master weights, in the precision of the moments.
  at::Tensor master() const;
};

class Snapshot {
 public:
  // Takes all host memory that it will need: bytes().
  Snapshot(models::RankModel& model, c10::Device device);

  // As of HostCopy: the state after the step that has been given to the device.
  void start();
  void hold_back_changes() { copy_.hold_back_changes(); }
  void wait() { copy_.wait(); }

  const std::vector<SavedRange>& ranges() const { return ranges_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::vector<SavedRange> ranges_;
  ops::HostCopy copy_;
  std::int64_t bytes_ = 0;
};

}  // namespace braid::checkpoint
