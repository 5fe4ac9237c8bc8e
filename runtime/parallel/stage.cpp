#include "runtime/parallel/stage.h"

#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "planner/core/error.h"
#include "planner/simulate/trace_writer.h"
#include "runtime/ops/fp8.h"
#include "runtime/parallel/collectives.h"
#include "runtime/parallel/recorder.h"

namespace braid::parallel {

namespace {

// A rank of a channel's pair is 0 where it sends.
constexpr int kSender = 0, kReceiver = 1;

// The strategy of a layer, wherever it is.
Strategy strategy_of(const Plan& plan, int layer) {
  for (const StagePlan& stage : plan.stages) {
    const std::vector<int> layers = layers_of(stage);
    const auto found = std::ranges::find(layers, layer);
    if (found != layers.end())
      return stage.strategies[static_cast<std::size_t>(found - layers.begin())];
  }
  internal_failure("a layer that no stage holds", std::source_location::current());
}

// The streams of a model, by their tokens. Only an encoder-decoder has a second one, up to its last
// block.
struct Lanes {
  explicit Lanes(const Model& of) : model(of), first_decoder(of.num_layers()) {
    for (int layer = of.num_layers() - 1; layer > 0; --layer)
      if (of.type_of(layer).shape.cross_tokens > 0) first_decoder = layer;
    has_side = first_decoder < of.num_layers();
  }
  // Behind a layer.
  std::int64_t main(int layer) const { return tokens_behind(model.type_of(layer).shape); }
  // Behind a layer; 0: none.
  std::int64_t side(int layer) const {
    if (!has_side || layer >= model.num_layers() - 2) return 0;
    const LayerShape& decoder = model.type_of(first_decoder).shape;
    return layer < first_decoder ? decoder.tokens : decoder.cross_tokens;
  }

  const Model& model;
  int first_decoder;
  bool has_side = false;
};

}  // namespace

Stage::Stage(const Plan& plan, int device, bool causal, const Numerics& numerics,
             const std::vector<Layer*>& layers, Groups& groups, StageHooks hooks)
    : shape_(plan.shape),
      stage_(stage_of(device, plan.mesh())),
      numerics_(numerics),
      hooks_(std::move(hooks)) {
  const Mesh mesh = plan.mesh();
  const int local = local_rank(device, mesh);
  std::vector<int> members;
  members.reserve(static_cast<std::size_t>(mesh.stage_devices()));
  for (int l = 0; l < mesh.stage_devices(); ++l) members.push_back(device_at(stage_, l, mesh));
  comm::Group& group = *groups.among(members);

  const Lanes lanes(plan.model);
  // Of so many tokens, as a layer has them.
  const auto layout = [&](int layer, std::int64_t tokens) {
    return activation_layout(strategy_of(plan, layer), mesh, tokens, plan.micro_batch(), causal);
  };
  const auto shape_of = [&](int layer, std::int64_t tokens) {
    if (tokens == 0) return std::vector<std::int64_t>{};
    const Layout lies = layout(layer, tokens);
    const std::int64_t hidden = width_behind(plan.model.type_of(layer).shape);
    return std::vector<std::int64_t>{count(segments(lies.dims[0], tokens, local)),
                                     count(segments(lies.dims[1], plan.micro_batch(), local)),
                                     count(segments(lies.dims[2], hidden, local))};
  };
  const auto shapes_behind = [&](int layer) {
    return StreamShapes{shape_of(layer, lanes.main(layer)), shape_of(layer, lanes.side(layer))};
  };
  const auto between = [&](int from, int to, std::int64_t tokens) {
    std::unique_ptr<Redistribution> change;
    if (tokens == 0 || layout(from, tokens) == layout(to, tokens)) return change;
    const std::vector<std::int64_t> extents = {tokens, plan.micro_batch(),
                                               plan.model.type_of(std::max(from, to)).shape.hidden};
    return std::make_unique<Redistribution>(
        layout(from, tokens), layout(to, tokens), extents, group,
        fmt::format("redistribute to layer {}", std::max(from, to)));
  };
  auto next = layers.begin();
  for (const LayerRange& range : plan.stages[static_cast<std::size_t>(stage_)].chunks) {
    Chunk chunk;
    const int first_looking = std::max(range.begin, lanes.first_decoder);
    for (int layer = range.begin; layer < range.end; ++layer) {
      Step step;
      step.layer = *next++;
      if (layer > 0) {
        const std::int64_t tokens = lanes.main(layer - 1);
        step.enter = between(layer - 1, layer, tokens);
        step.leave = between(layer, layer - 1, tokens);
        const std::int64_t others = lanes.side(layer - 1);
        const std::int64_t looked_at = plan.model.type_of(layer).shape.cross_tokens;
        step.side_enter = between(layer - 1, layer, others);
        step.side_leave = between(layer, layer - 1, others);
        step.swaps = lanes.has_side && layer == lanes.first_decoder;
        step.looks_aside = looked_at > 0;
        step.recall = between(first_looking, layer, looked_at);
      }
      chunk.steps.push_back(std::move(step));
    }
    if (range.begin > 0) chunk.arriving = shapes_behind(range.begin - 1);
    chunk.leaving = shapes_behind(range.end - 1);
    chunks_.push_back(std::move(chunk));
  }

  // In one order for all ranks: boundary by boundary.
  const int stages = plan.shape.stages;
  for (int from = 0; stages > 1 && from < stages; ++from) {
    const int to = (from + 1) % stages;
    if (to == 0 && plan.shape.chunks == 1) continue;
    if (stage_ != from && stage_ != to) continue;
    const int sender = device_at(from, local, mesh), receiver = device_at(to, local, mesh);
    const GroupPtr down =
        groups.among({sender, receiver}, "activations", comm::GroupUse::messages_up);
    const GroupPtr up = groups.among({receiver, sender}, "gradients", comm::GroupUse::messages_up);
    (stage_ == from ? activation_out_ : activation_in_) = down;
    (stage_ == from ? gradient_in_ : gradient_out_) = up;
    (stage_ == from ? next_ : previous_) = stage_ == from ? receiver : sender;
  }
}

bool hides_communication(const Layer& layer) {
  const LayerKind kind = layer.site().shape.kind;
  return layer.site().megatron() && (kind == LayerKind::block || kind == LayerKind::embedding);
}

bool Stage::rounds(const Layer& layer) const {
  return numerics_.fp8 && layer.site().shape.kind == LayerKind::block;
}

void Stage::forward(int chunk, int micro_batch) {
  const Key key{chunk, micro_batch};
  std::vector<Step>& steps = chunks_[static_cast<std::size_t>(chunk)].steps;
  Flight& flight = flights_[key];
  flight.saved.resize(steps.size());
  flight.work.resize(steps.size());
  Streams streams = std::move(activations_[key]);
  activations_.erase(key);
  at::Tensor& x = streams.x;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Layer& layer = *steps[i].layer;
    layer.parameters().wait_weights();
    if (i + 1 < steps.size()) steps[i + 1].layer->parameters().start_weights();
    if (steps[i].enter) {
      const ComputeScope scope(Phase::redistribute, layer.name(), micro_batch);
      x = (*steps[i].enter)(x);
      if (steps[i].side_enter) streams.side = (*steps[i].side_enter)(streams.side);
    }
    if (steps[i].swaps) std::swap(streams.x, streams.side);
    if (steps[i].looks_aside && !flight.beside.defined()) flight.beside = streams.side;
    const ComputeScope scope(Phase::forward, layer.name(), micro_batch);
    Feed feed = hooks_.feed(layer, micro_batch, Pass::forward);
    Side side{.value = streams.side, .gradient = {}};
    feed.side = &side;
    if (layer.gradients_in_forward()) layer.parameters().begin_gradients();
    {
      const ops::Fp8Scope fp8(rounds(layer));
      x = layer.forward(x, feed, flight.saved[i]);
    }
    streams.side = side.value;
    if (layer.gradients_in_forward()) layer.parameters().end_gradients();
    layer.parameters().release_weights();
    flight.bytes += flight.saved[i].bytes();
  }
  saved_ += flight.bytes;
  peak_saved_ = std::max(peak_saved_, saved_);
  const Key onward{lone() ? chunk + 1 : chunk, micro_batch};
  if (chunks_[static_cast<std::size_t>(chunk)].leaving.side.empty()) streams.side.reset();
  if (x.defined()) activations_[onward] = std::move(streams);
}

void Stage::finish_gradients(const Chunk& chunk, std::size_t step) {
  Layer& layer = *chunk.steps[step].layer;
  layer.parameters().end_gradients();
  if (step + 1 < chunk.steps.size()) chunk.steps[step + 1].layer->parameters().settle_gradients();
  if (step == 0) layer.parameters().settle_gradients();
  const bool last = chunk.landed + 1 == shape_.micro_batches;
  if (!last || layer.shares_gradients) return;
  for (FlatBuffer* buffer : layer.parameters().buffers()) buffer->start_reduction();
}

void Stage::run_backward(int chunk_index, int micro_batch, bool weights_too) {
  const Key key{chunk_index, micro_batch};
  Chunk& chunk = chunks_[static_cast<std::size_t>(chunk_index)];
  std::vector<Step>& steps = chunk.steps;
  Flight& flight = flights_.at(key);
  Streams gradients = std::move(gradients_[key]);
  gradients_.erase(key);
  at::Tensor& gradient = gradients.x;
  Side side{.value = {}, .gradient = std::move(gradients.side)};
  WeightWork beside = WeightWork::beside_communication();
  for (std::size_t i = steps.size(); i-- > 0;) {
    Layer& layer = *steps[i].layer;
    layer.parameters().wait_weights();
    if (i > 0) steps[i - 1].layer->parameters().start_weights();
    {
      const ComputeScope scope(weights_too ? Phase::backward : Phase::backward_input, layer.name(),
                               micro_batch);
      if (steps[i].looks_aside) {
        // The layer behind this one may have looked at the same.
        const bool as_before = side.value.defined() && !steps[i + 1].side_enter;
        if (!steps[i].recall) {
          side.value = flight.beside;
        } else if (!as_before) {
          side.value = (*steps[i].recall)(flight.beside);
        }
      }
      Feed feed = hooks_.feed(layer, micro_batch, Pass::backward);
      feed.side = &side;
      const ops::Fp8Scope fp8(rounds(layer));
      if (weights_too) {
        const bool hides = hides_communication(layer);
        if (!hides) beside.run();
        WeightWork at_once = WeightWork::at_once();
        WeightWork& work = hides ? beside : at_once;
        // Behind those of the layer before, so that no more gradients exist than there would.
        work.later([&layer] { layer.parameters().begin_gradients(); });
        gradient = layer.backward(gradient, feed, flight.saved[i], work);
        work.later([this, &chunk, i] { finish_gradients(chunk, i); });
        flight.saved[i] = {};
        if (i == 0) beside.run();
      } else {
        gradient = layer.backward(gradient, feed, flight.saved[i], flight.work[i]);
        flight.saved[i] = {};  // the work that waits keeps what it needs
      }
      layer.parameters().release_weights();
    }
    if (steps[i].swaps) std::swap(gradient, side.gradient);
    if (!steps[i].leave) continue;
    const ComputeScope scope(Phase::redistribute, layer.name(), micro_batch);
    gradient = (*steps[i].leave)(gradient);
    if (steps[i].side_leave) side.gradient = (*steps[i].side_leave)(side.gradient);
  }
  saved_ -= std::exchange(flight.bytes, 0);
  gradients.side = std::move(side.gradient);
  const Key onward{lone() ? chunk_index - 1 : chunk_index, micro_batch};
  if (gradient.defined()) gradients_[onward] = std::move(gradients);
}

void Stage::land(const Key& key) {
  flights_.erase(key);
  ++chunks_[static_cast<std::size_t>(key.first)].landed;
}

void Stage::backward(int chunk, int micro_batch) {
  run_backward(chunk, micro_batch, true);
  land({chunk, micro_batch});
}

void Stage::backward_input(int chunk, int micro_batch) { run_backward(chunk, micro_batch, false); }

void Stage::backward_weight(int chunk_index, int micro_batch) {
  const Key key{chunk_index, micro_batch};
  Chunk& chunk = chunks_[static_cast<std::size_t>(chunk_index)];
  Flight& flight = flights_.at(key);
  for (std::size_t i = chunk.steps.size(); i-- > 0;) {
    Layer& layer = *chunk.steps[i].layer;
    const ComputeScope scope(Phase::backward_weight, layer.name(), micro_batch);
    layer.parameters().begin_gradients();
    flight.work[i].run();
    finish_gradients(chunk, i);
  }
  land(key);
}

// What was sent must live until it has left. No schedule is more than `stages` messages ahead of
// its neighbour, so waiting for an older one costs nothing and bounds the memory.
void Stage::post(comm::Group& channel, Outbox& outbox, const at::Tensor& message, const Op& op) {
  const bool onward = op.kind == OpKind::send_activation;
  const char* name = onward ? kActivation : kGradient;
  outbox.push_back({communicate({.kind = CommKind::transfer,
                                 .operation = name,
                                 .role = Role::sends,
                                 .peer = onward ? next_ : previous_,
                                 .label = transfer_label(op, shape_.chunks)},
                                [&] { return channel.send(buffer_of(message), kReceiver, name); }),
                    message});
  while (outbox.size() > static_cast<std::size_t>(shape_.stages)) {
    outbox.front().handle.wait();
    outbox.pop_front();
  }
}

Streams Stage::fetch(comm::Group& channel, const StreamShapes& shapes, const Op& op) {
  const bool onward = op.kind == OpKind::receive_activation;
  const char* name = onward ? kActivation : kGradient;
  at::Tensor tensor = at::empty(message_shape(shapes),
                                at::TensorOptions(numerics_.compute).device(numerics_.device));
  communicate({.kind = CommKind::transfer,
               .operation = name,
               .role = Role::receives,
               .peer = onward ? previous_ : next_,
               .label = transfer_label(op, shape_.chunks)},
              [&] { return channel.receive(buffer_of(tensor), kSender, name); })
      .wait();
  return unpacked(tensor, shapes);
}

void Stage::send_activation(int chunk, int micro_batch) {
  const auto found = activations_.find({chunk, micro_batch});
  post(*activation_out_, activations_sent_, packed(found->second),
       {OpKind::send_activation, chunk, micro_batch});
  activations_.erase(found);
}

void Stage::receive_activation(int chunk, int micro_batch) {
  activations_[{chunk, micro_batch}] =
      fetch(*activation_in_, chunks_[static_cast<std::size_t>(chunk)].arriving,
            {OpKind::receive_activation, chunk, micro_batch});
}

void Stage::send_gradient(int chunk, int micro_batch) {
  const auto found = gradients_.find({chunk, micro_batch});
  post(*gradient_out_, gradients_sent_, packed(found->second),
       {OpKind::send_gradient, chunk, micro_batch});
  gradients_.erase(found);
}

void Stage::receive_gradient(int chunk, int micro_batch) {
  gradients_[{chunk, micro_batch}] =
      fetch(*gradient_in_, chunks_[static_cast<std::size_t>(chunk)].leaving,
            {OpKind::receive_gradient, chunk, micro_batch});
}

void Stage::reduce() {
  const ComputeScope scope(Phase::reduce, "");
  hooks_.before_reduce();
  for (Chunk& chunk : chunks_) chunk.landed = 0;
  for (const Chunk& chunk : chunks_)
    for (const Step& step : chunk.steps)
      for (FlatBuffer* buffer : step.layer->parameters().buffers()) buffer->reduce_gradients();
}

void Stage::update() { hooks_.update(); }

void Stage::finish_step() {
  for (Outbox* outbox : {&activations_sent_, &gradients_sent_}) {
    for (Sending& sending : *outbox) sending.handle.wait();
    outbox->clear();
  }
  internal_check(flights_.empty() && activations_.empty() && gradients_.empty(),
                 "a step leaves nothing behind");
}

void Stage::abandon_step() {
  for (Outbox* outbox : {&activations_sent_, &gradients_sent_}) outbox->clear();
  flights_.clear();
  activations_.clear();
  gradients_.clear();
  saved_ = 0;
  for (Chunk& chunk : chunks_) chunk.landed = 0;
}

}  // namespace braid::parallel
