#pragma once
// Plays a stage's list of operations: the same list that the simulator plays on a clock.

#include <functional>

#include "planner/simulate/schedule.h"

namespace braid::parallel {

class StageWork {
 public:
  virtual ~StageWork() = default;
  virtual void forward(int chunk, int micro_batch) = 0;
  virtual void backward(int chunk, int micro_batch) = 0;
  virtual void backward_input(int chunk, int micro_batch) = 0;
  virtual void backward_weight(int chunk, int micro_batch) = 0;
  virtual void send_activation(int chunk, int micro_batch) = 0;
  virtual void receive_activation(int chunk, int micro_batch) = 0;
  virtual void send_gradient(int chunk, int micro_batch) = 0;
  virtual void receive_gradient(int chunk, int micro_batch) = 0;
  virtual void reduce() = 0;
  virtual void update() = 0;
};

// The schedule of a shape, proven complete and free of deadlock.
Schedule proven_schedule(const PipelineShape& shape);

using Watch = std::function<void(const Op&)>;  // told of each operation when it is done
void play(const OpList& list, StageWork& work, const Watch& watch = {});

}  // namespace braid::parallel
