#include "planner/simulate/stage_memory.h"

#include <algorithm>
#include <utility>

#include "planner/core/error.h"
#include "planner/simulate/layer_tensors.h"
#include "planner/simulate/stage_steps.h"

namespace braid {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

Bytes sum(const std::vector<Bytes>& list) {
  Bytes all;
  for (const Bytes size : list) all += size;
  return all;
}

void fit(std::vector<Bytes>& list, double ratio) {
  if (ratio == 1) return;
  for (Bytes& size : list) size = scaled(size, ratio);
}

// Of a prediction over what the shapes say; profiles may have measured something else.
double ratio_of(Bytes predicted, Bytes shapes) {
  return shapes == Bytes() || predicted == shapes ? 1 : predicted / shapes;
}

Bytes work_of(const LayerTensors& t) {
  const Bytes work = std::max(sum(t.forward_work), sum(t.backward_work));
  return std::max(work, t.share + t.input) + 2 * t.gathered + 2 * t.whole_gradient + t.share;
}

using Chunks = std::vector<std::vector<LayerTensors>>;

void fit_to(const LayerMemory& memory, Chunks& chunks) {
  Bytes states, saved, work;
  for (const auto& chunk : chunks) {
    for (const LayerTensors& t : chunk) {
      states += sum(t.states) + sum(t.gradients);
      saved += sum(t.saved);
      work = std::max(work, work_of(t));
    }
  }
  const double states_ratio = ratio_of(memory.states(), states);
  const double saved_ratio = ratio_of(memory.activations, saved);
  const double work_ratio = ratio_of(memory.workspace, work);
  for (auto& chunk : chunks) {
    for (LayerTensors& t : chunk) {
      fit(t.states, states_ratio);
      fit(t.gradients, states_ratio);
      fit(t.saved, saved_ratio);
      fit(t.forward_work, work_ratio);
      fit(t.backward_work, work_ratio);
      t.gathered = scaled(t.gathered, work_ratio);
      t.whole_gradient = scaled(t.whole_gradient, work_ratio);
      t.share = scaled(t.share, work_ratio);
    }
  }
}

Chunks tensors_of(const Plan& plan, int stage) {
  Chunks chunks;
  const StagePlan& layers = plan.stages[index(stage)];
  auto strategy = layers.strategies.begin();
  for (const LayerRange& chunk : layers.chunks) {
    chunks.emplace_back();
    for (int layer = chunk.begin; layer < chunk.end; ++layer)
      chunks.back().push_back(layer_tensors(plan, layer, *strategy++));
  }
  return chunks;
}

class Events : public TensorListener {
 public:
  int made(Bytes size) override {
    events_.push_back({next_, size});
    return next_++;
  }
  void freed(int tensor) override { events_.push_back({tensor, Bytes()}); }
  std::vector<MemoryEvent> take() { return std::move(events_); }

 private:
  std::vector<MemoryEvent> events_;
  int next_ = 0;
};

}  // namespace

std::vector<MemoryEvent> stage_allocations(const Plan& plan, int stage, int steps) {
  internal_check(std::ssize(plan.prediction.stages) == plan.shape.stages,
                 "memory of a plan that is priced");
  Chunks chunks = tensors_of(plan, stage);
  fit_to(plan.prediction.stages[index(stage)].memory, chunks);
  Events events;
  StageSteps player(plan.shape, stage, std::move(chunks), events);
  const OpList list = stage_schedule(plan.shape, stage);
  for (int i = 0; i < steps; ++i) player.step(list);
  return events.take();
}

ReplayedMemory stage_reserved(const Plan& plan, int stage) {
  return replay(stage_allocations(plan, stage));
}

}  // namespace braid
