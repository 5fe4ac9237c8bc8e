#include "planner/simulate/stage_steps.h"

#include <algorithm>

namespace braid {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

class Count : public TensorListener {
 public:
  int made(Bytes size) override {
    live_ += size;
    most_ = std::max(most_, live_);
    if (unused_.empty()) {
      sizes_.push_back(size);
      return static_cast<int>(sizes_.size()) - 1;
    }
    const int tensor = unused_.back();
    unused_.pop_back();
    sizes_[index(tensor)] = size;
    return tensor;
  }
  void freed(int tensor) override {
    live_ -= sizes_[index(tensor)];
    unused_.push_back(tensor);
  }
  Bytes most() const { return most_; }

 private:
  std::vector<Bytes> sizes_;
  std::vector<int> unused_;
  Bytes live_, most_;
};

// Once all gradients exist and as many micro-batches are in flight as ever will be, a stage repeats
// itself: in the micro-batch behind two rounds of the pipeline, or in the third where it has
// chunks. Not where all micro-batches are in flight.
PipelineShape short_step(PipelineShape shape) {
  const int enough = shape.chunks > 1 ? 3 * shape.stages : 2 * shape.stages + 2;
  if (shape.schedule != ScheduleKind::gpipe)
    shape.micro_batches = std::min(shape.micro_batches, enough);
  return shape;
}

}  // namespace

// Weights of the next layer are gathered while this one works.
class StageSteps::Gathered {
 public:
  Gathered(StageSteps& steps, std::span<const LayerTensors> layers, bool forward)
      : steps_(steps), layers_(layers), forward_(forward) {
    gather(0);
  }
  void enter(std::size_t place) {
    here_ = std::exchange(ahead_, {});
    if (place + 1 < layers_.size()) gather(place + 1);
  }
  void leave() { steps_.drop(here_); }

 private:
  const LayerTensors& at(std::size_t place) const {
    return layers_[forward_ ? place : layers_.size() - 1 - place];
  }
  void gather(std::size_t place) {
    if (at(place).gathered == Bytes()) return;
    Room& room = steps_.rooms_[at(place).replicas];
    ahead_ = steps_.make_whole(room.weights, room.pool);
  }
  StageSteps& steps_;
  std::span<const LayerTensors> layers_;
  bool forward_;
  Whole here_, ahead_;
};

StageSteps::StageSteps(const PipelineShape& shape, int stage,
                       std::vector<std::vector<LayerTensors>> chunks, TensorListener& listener)
    : shape_(shape), stage_(stage), chunks_(std::move(chunks)), listener_(listener) {
  for (const auto& chunk : chunks_)
    for (const LayerTensors& layer : chunk) {
      Room& room = rooms_[layer.replicas];
      room.weights = std::max(room.weights, layer.gathered);
      room.gradients = std::max(room.gradients, layer.whole_gradient);
    }
  for (const auto& chunk : chunks_) {
    gradients_.emplace_back(chunk.size());
    for (std::size_t place = 0; place < chunk.size(); ++place) {
      make_all(chunk[place].states);
      if (!chunk[place].gradients_stay) continue;
      make_all(chunk[place].gradients);
      gradients_.back()[place].exist = true;
    }
  }
}

void StageSteps::step(const OpList& list) {
  for (const Op& op : list) play(op);
  for (std::deque<int>* box : {&activations_sent_, &gradients_sent_})
    for (; !box->empty(); box->pop_front()) drop(box->front());
}

void StageSteps::drop(int& tensor) {
  if (tensor != kNone) listener_.freed(tensor);
  tensor = kNone;
}

StageSteps::Whole StageSteps::make_whole(Bytes size, BlockPool& pool) {
  BlockPool::Block block = pool.find(size);
  if (block == BlockPool::kNone) {
    block = pool.make(size);
    listener_.made(pool.size(block));
  }
  pool.use(block);
  return {&pool, block};
}

void StageSteps::drop(Whole& whole) {
  if (whole.pool != nullptr) whole.pool->give_back(whole.block);
  whole = {};
}

StageSteps::Tensors StageSteps::make_all(std::span<const Bytes> sizes) {
  Tensors tensors;
  tensors.reserve(sizes.size());
  for (const Bytes size : sizes) tensors.push_back(make(size));
  return tensors;
}

void StageSteps::drop_all(Tensors& tensors) {
  for (int& tensor : tensors) drop(tensor);
  tensors.clear();
}

// A message stays until as many have followed as there are stages.
void StageSteps::post(std::deque<int>& box, int tensor) {
  box.push_back(tensor);
  for (; box.size() > index(shape_.stages); box.pop_front()) drop(box.front());
}

void StageSteps::play(const Op& op) {
  switch (op.kind) {
    case OpKind::forward:
      return forward(op);
    case OpKind::backward:
      return backward(op, false);
    case OpKind::backward_input:
      return backward(op, true);
    case OpKind::backward_weight:
      return backward_weight(op);
    case OpKind::update:
      return update();
    case OpKind::send_activation:
    case OpKind::receive_activation:
    case OpKind::send_gradient:
    case OpKind::receive_gradient:
    case OpKind::reduce:
      return;
  }
}

void StageSteps::begin_gradients(const LayerTensors& layer, Gradients& gradients) {
  if (layer.whole_gradient > Bytes()) {
    Room& room = rooms_[layer.replicas];
    gradients.whole = make_whole(room.gradients, room.pool);
  } else if (!std::exchange(gradients.exist, true)) {
    gradients.stored = make_all(layer.gradients);
  }
}

void StageSteps::end_gradients(const LayerTensors& layer, Gradients& gradients) {
  if (layer.whole_gradient == Bytes()) return;
  settle(gradients);
  gradients.leaving = std::exchange(gradients.whole, {});
  gradients.arriving = make(layer.share);
  gradients.scattering = true;
}

// What has arrived is added to what is there, or is the first.
void StageSteps::settle(Gradients& gradients) {
  if (!std::exchange(gradients.scattering, false)) return;
  drop(gradients.leaving);
  if (std::exchange(gradients.exist, true)) {
    drop(gradients.arriving);
  } else {
    gradients.stored = {std::exchange(gradients.arriving, kNone)};
  }
}

void StageSteps::finish_gradients(const Op& op, std::size_t place) {
  auto& gradients = gradients_[index(op.chunk)];
  end_gradients(chunks_[index(op.chunk)][place], gradients[place]);
  if (place + 1 < gradients.size()) settle(gradients[place + 1]);
  if (place == 0) settle(gradients[place]);
}

void StageSteps::forward(const Op& op) {
  const auto& layers = chunks_[index(op.chunk)];
  if (layers.empty()) return;
  auto& kept = saved_[{op.chunk, op.micro_batch}];
  Gathered gathered(*this, layers, true);
  int output = kNone;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerTensors& layer = layers[i];
    Gradients& gradients = gradients_[index(op.chunk)][i];
    gathered.enter(i);
    // What a layer keeps of its input was the output of the one before.
    drop(output);
    if (layer.gradients_in_forward) begin_gradients(layer, gradients);
    kept.push_back(make_all(layer.saved));
    Tensors work = make_all(layer.forward_work);
    drop_all(work);
    output = make(layer.output);
    if (layer.gradients_in_forward) end_gradients(layer, gradients);
    gathered.leave();
  }
  if (sends_activation(shape_, stage_, op.chunk))
    post(activations_sent_, output);
  else
    drop(output);
}

void StageSteps::backward(const Op& op, bool input_only) {
  const auto& layers = chunks_[index(op.chunk)];
  if (layers.empty()) return;
  const Unit unit(op.chunk, op.micro_batch);
  auto& kept = saved_[unit];
  Gathered gathered(*this, layers, false);
  int gradient = kNone;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::size_t place = layers.size() - 1 - i;
    const LayerTensors& layer = layers[place];
    gathered.enter(i);
    if (!input_only) begin_gradients(layer, gradients_[index(op.chunk)][place]);
    drop(gradient);  // the work has it
    Tensors work = make_all(layer.backward_work);
    drop_all(work);
    if (input_only) {
      drop_all(kept[place]);
      deferred_[unit].push_back(defer(layer));
    }
    gradient = make(layer.input);
    if (!input_only) {
      finish_gradients(op, place);
      drop_all(kept[place]);
    }
    gathered.leave();
  }
  if (sends_gradient(shape_, stage_, op.chunk))
    post(gradients_sent_, gradient);
  else
    drop(gradient);
  saved_.erase(unit);
}

StageSteps::Deferred StageSteps::defer(const LayerTensors& layer) {
  Deferred deferred{.tensor = make(layer.deferred), .wholes = {}};
  for (const Bytes size : layer.waits)
    deferred.wholes.push_back(make_whole(size, tensor_pools_[layer.tensor]));
  return deferred;
}

void StageSteps::backward_weight(const Op& op) {
  const auto& layers = chunks_[index(op.chunk)];
  const Unit unit(op.chunk, op.micro_batch);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::size_t place = layers.size() - 1 - i;
    begin_gradients(layers[place], gradients_[index(op.chunk)][place]);
    Tensors work = make_all(layers[place].weight_work);
    drop_all(work);
    Deferred& deferred = deferred_[unit][i];
    drop(deferred.tensor);
    for (Whole& whole : deferred.wholes) drop(whole);
    finish_gradients(op, place);
  }
  deferred_.erase(unit);
}

void StageSteps::update() {
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    for (std::size_t place = 0; place < chunks_[chunk].size(); ++place) {
      Gradients& gradients = gradients_[chunk][place];
      settle(gradients);
      if (chunks_[chunk][place].gradients_stay) continue;  // `stored` has none
      drop_all(gradients.stored);
      gradients.exist = false;
    }
  }
}

Bytes peak_of_step(const PipelineShape& shape, int stage,
                   std::vector<std::vector<LayerTensors>> chunks) {
  const PipelineShape played = short_step(shape);
  Count count;
  StageSteps steps(played, stage, std::move(chunks), count);
  steps.step(stage_schedule(played, stage));
  return count.most();
}

}  // namespace braid
