#include "planner/simulate/stage_memory.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "planner/core/error.h"
#include "planner/simulate/layer_tensors.h"
#include "planner/simulate/schedule.h"

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
  return std::max(sum(t.forward_work), sum(t.backward_work) + t.weight_gradient) + 2 * t.gathered +
         2 * t.whole_gradient;
}

class StageSteps {
 public:
  StageSteps(const Plan& plan, int stage) : plan_(plan), stage_(stage) {
    const StagePlan& layers = plan.stages[index(stage)];
    auto strategy = layers.strategies.begin();
    for (const LayerRange& chunk : layers.chunks) {
      chunks_.emplace_back();
      for (int layer = chunk.begin; layer < chunk.end; ++layer)
        chunks_.back().push_back(layer_tensors(plan, layer, *strategy++));
    }
    fit_to_prediction();
    for (const auto& chunk : chunks_)
      for (const LayerTensors& t : chunk) make_all(t.states);
  }

  void step(const OpList& list) {
    for (const Op& op : list) play(op);
    for (auto& box : outbox_) drop_beyond(box, 0);
  }

  std::vector<MemoryEvent> finish() { return std::move(events_); }

 private:
  using Tensors = std::vector<int>;

  void fit_to_prediction() {
    const LayerMemory& memory = plan_.prediction.stages[index(stage_)].memory;
    Bytes states, saved, work;
    for (const auto& chunk : chunks_) {
      for (const LayerTensors& t : chunk) {
        states += sum(t.states);
        saved += sum(t.saved);
        work = std::max(work, work_of(t));
      }
    }
    const double saved_ratio = ratio_of(memory.activations, saved);
    const double work_ratio = ratio_of(memory.workspace, work);
    for (auto& chunk : chunks_) {
      for (LayerTensors& t : chunk) {
        fit(t.states, ratio_of(memory.states(), states));
        fit(t.saved, saved_ratio);
        fit(t.forward_work, work_ratio);
        fit(t.backward_work, work_ratio);
        t.gathered = scaled(t.gathered, work_ratio);
        t.whole_gradient = scaled(t.whole_gradient, work_ratio);
        t.weight_gradient = scaled(t.weight_gradient, work_ratio);
      }
    }
  }

  int make(Bytes size) {
    if (size <= Bytes()) return -1;
    events_.push_back({next_, size});
    return next_++;
  }
  void drop(int tensor) {
    if (tensor >= 0) events_.push_back({tensor, Bytes()});
  }
  Tensors make_all(const std::vector<Bytes>& sizes) {
    Tensors tensors;
    tensors.reserve(sizes.size());
    for (const Bytes size : sizes) tensors.push_back(make(size));
    return tensors;
  }
  void drop_all(const Tensors& tensors) {
    for (const int tensor : tensors) drop(tensor);
  }
  // A message stays until as many have followed as there are stages.
  void drop_beyond(std::deque<int>& box, std::size_t most) {
    for (; box.size() > most; box.pop_front()) drop(box.front());
  }
  void post(std::deque<int>& box, int tensor) {
    box.push_back(tensor);
    drop_beyond(box, index(plan_.shape.stages));
  }

  void play(const Op& op) {
    switch (op.kind) {
      case OpKind::forward:
        forward(op);
        break;
      case OpKind::backward:
        backward(op, false);
        break;
      case OpKind::backward_input:
        backward(op, true);
        break;
      case OpKind::backward_weight:
        backward_weight(op);
        break;
      case OpKind::send_activation:
      case OpKind::receive_activation:
      case OpKind::send_gradient:
      case OpKind::receive_gradient:
      case OpKind::reduce:
      case OpKind::update:
        break;
    }
  }

  // Weights of the next layer are gathered while this one works.
  class Gathered {
   public:
    Gathered(StageSteps& steps, const std::vector<LayerTensors>& layers, bool forward)
        : steps_(steps), layers_(layers), forward_(forward) {
      ahead_ = steps_.make(at(0).gathered);
    }
    void enter(std::size_t place) {
      here_ = std::exchange(ahead_, -1);
      if (place + 1 < layers_.size()) ahead_ = steps_.make(at(place + 1).gathered);
    }
    void leave() { steps_.drop(std::exchange(here_, -1)); }

   private:
    const LayerTensors& at(std::size_t place) const {
      return layers_[forward_ ? place : layers_.size() - 1 - place];
    }
    StageSteps& steps_;
    const std::vector<LayerTensors>& layers_;
    bool forward_;
    int here_ = -1, ahead_ = -1;
  };

  void forward(const Op& op) {
    const auto& layers = chunks_[index(op.chunk)];
    if (layers.empty()) return;
    auto& kept = saved_[{op.chunk, op.micro_batch}];
    Gathered gathered(*this, layers, true);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      gathered.enter(i);
      const Tensors work = make_all(layers[i].forward_work);
      kept.push_back(make_all(layers[i].saved));
      drop_all(work);
      gathered.leave();
    }
    if (sends_activation(plan_.shape, stage_, op.chunk))
      post(outbox_[0], make(layers.back().input));
  }

  void backward(const Op& op, bool input_only) {
    const auto& layers = chunks_[index(op.chunk)];
    if (layers.empty()) return;
    auto& kept = saved_[{op.chunk, op.micro_batch}];
    auto& waiting = deferred_[{op.chunk, op.micro_batch}];
    int gradient =
        receives_gradient(plan_.shape, stage_, op.chunk) ? make(layers.back().input) : -1;
    int scattering = -1;
    Gathered gathered(*this, layers, false);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::size_t place = layers.size() - 1 - i;
      const LayerTensors& t = layers[place];
      gathered.enter(i);
      const int whole = input_only ? -1 : make(t.whole_gradient);
      const Tensors work = make_all(t.backward_work);
      if (!input_only) drop(make(t.weight_gradient));
      const int before = make(t.input);
      drop(std::exchange(gradient, before));
      if (input_only) waiting.push_back(make(t.deferred));
      drop_all(work);
      if (!input_only) drop_all(kept[place]);
      drop(std::exchange(scattering, whole));
      gathered.leave();
    }
    drop(scattering);
    if (sends_gradient(plan_.shape, stage_, op.chunk)) {
      post(outbox_[1], gradient);
    } else {
      drop(gradient);
    }
    if (!input_only) saved_.erase({op.chunk, op.micro_batch});
  }

  void backward_weight(const Op& op) {
    const auto& layers = chunks_[index(op.chunk)];
    const std::pair unit(op.chunk, op.micro_batch);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::size_t place = layers.size() - 1 - i;
      const int whole = make(layers[place].whole_gradient);
      drop(make(layers[place].weight_gradient));
      drop(deferred_[unit][i]);
      drop_all(saved_[unit][place]);
      drop(whole);
    }
    deferred_.erase(unit);
    saved_.erase(unit);
  }

  const Plan& plan_;
  int stage_;
  std::vector<std::vector<LayerTensors>> chunks_;
  std::map<std::pair<int, int>, std::vector<Tensors>> saved_;  // by chunk and micro-batch
  std::map<std::pair<int, int>, Tensors> deferred_;
  std::deque<int> outbox_[2];  // activations, gradients
  std::vector<MemoryEvent> events_;
  int next_ = 0;
};

}  // namespace

std::vector<MemoryEvent> stage_allocations(const Plan& plan, int stage, int steps) {
  internal_check(std::ssize(plan.prediction.stages) == plan.shape.stages,
                 "memory of a plan that is priced");
  const Schedule schedule = make_schedule(plan.shape);
  StageSteps player(plan, stage);
  for (int i = 0; i < steps; ++i) player.step(schedule[index(stage)]);
  return player.finish();
}

ReplayedMemory stage_reserved(const Plan& plan, int stage) {
  return replay(stage_allocations(plan, stage));
}

}  // namespace braid
