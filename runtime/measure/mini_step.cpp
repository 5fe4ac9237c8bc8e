#include "runtime/measure/mini_step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "runtime/comm/dry.h"
#include "runtime/ops/device.h"
#include "runtime/parallel/stage.h"

namespace braid::measure {

namespace {

Model cut_down(const Model& model, const MiniOptions& options) {
  Model small = model;
  small.layers = {model.layers.front()};
  small.layers.insert(small.layers.end(), static_cast<std::size_t>(options.blocks),
                      options.block_type);
  small.layers.push_back(model.layers.back());
  // Where resolutions differ, embedding and head are as the blocks are; an encoder-decoder's two
  // streams fit as they are.
  const LayerShape& block = model.types[static_cast<std::size_t>(options.block_type)].shape;
  if (block.cross_tokens + block.carried_tokens > 0) return small;
  LayerShape& embedding = small.types[static_cast<std::size_t>(small.layers.front())].shape;
  LayerShape& head = small.types[static_cast<std::size_t>(small.layers.back())].shape;
  embedding.tokens = block.tokens;
  embedding.hidden = block.hidden;
  head.tokens = tokens_behind(block);
  head.hidden = width_behind(block);
  return small;
}

// One stage of the ranks that share a sample.
Plan plan_of(const Model& model, const LayerQuestion& question, const MiniOptions& options) {
  Plan plan;
  plan.model = cut_down(model, options);
  plan.cluster.device_types.emplace_back();
  plan.cluster.groups.push_back(
      {.count = 1, .device_type = 0, .devices = question.tp * question.cp, .inside = {}});
  plan.global_batch = question.samples;
  const Strategy outside{.tp = question.tp, .tp_kind = question.kind, .cp = question.cp};
  Strategy block = outside;
  block.recompute = options.recompute;
  StagePlan stage;
  stage.chunks = {{0, plan.model.num_layers()}};
  stage.strategies.assign(static_cast<std::size_t>(plan.model.num_layers()), block);
  stage.strategies.front() = stage.strategies.back() = outside;
  plan.stages.push_back(std::move(stage));
  return plan;
}

// Of a pass in one go, as Stage has it.
parallel::WeightWork weight_work_of(const parallel::Layer& layer) {
  return parallel::hides_communication(layer) ? parallel::WeightWork::beside_communication()
                                              : parallel::WeightWork::at_once();
}

double bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<double>(tensor.nbytes()) : 0;
}

}  // namespace

// What one micro-batch leaves between forward and backward.
struct MiniStep::Flight {
  std::vector<parallel::Saved> saved;
  std::vector<parallel::WeightWork> work;
  parallel::Side side = {};
};

MiniStep::MiniStep(const Model& model, const LayerQuestion& question, int rank,
                   const MiniOptions& options)
    : options_(options),
      world_(comm::echo_group(rank, question.tp * question.cp,
                              [this](const void* from, void* to, std::int64_t bytes, int times) {
                                echo(from, to, bytes, times);
                              })),
      groups_(*world_) {
  const Plan plan = plan_of(model, question, options);
  model_ = models::build(plan, rank, options.numerics, groups_, {});
  layers_ = model_.all();
  // Numbers of the usual size.
  for (parallel::Layer* layer : layers_)
    for (parallel::FlatBuffer* buffer : layer->parameters().buffers())
      at::Tensor(buffer->weights()).normal_(0, 0.02);
}

void MiniStep::echo(const void* from, void* to, std::int64_t bytes, int times) {
  const at::Device device = options_.numerics.device;
  Copy copy{ops::Mark::now(device), {}};
  const bool words = bytes % 8 == 0;
  const auto options = at::TensorOptions(words ? at::kLong : at::kByte).device(device);
  const std::int64_t count = words ? bytes / 8 : bytes;
  at::from_blob(to, {times, count}, options)
      .copy_(at::from_blob(const_cast<void*>(from), {1, count}, options).expand({times, count}));
  copy.end = ops::Mark::now(device);
  copies_.push_back(std::move(copy));
}

MiniStep::Moment MiniStep::now() const {
  return {ops::Mark::now(options_.numerics.device), copies_.size()};
}

double MiniStep::between(const Moment& begin, const Moment& end) const {
  double seconds = end.mark.since(begin.mark);
  for (std::size_t i = begin.copies; i < end.copies; ++i)
    seconds -= copies_[i].end.since(copies_[i].begin);
  return seconds;
}

parallel::Feed MiniStep::feed(const parallel::Layer& layer) const {
  parallel::Feed feed;
  const parallel::Site& site = layer.site();
  if (&layer == model_.patches) {
    feed.patches =
        at::empty({parallel::count(site.narrow_tokens), site.samples, site.shape.patch_inputs},
                  at::TensorOptions(options_.numerics.compute).device(options_.numerics.device))
            .normal_();
    return feed;
  }
  if (&layer != model_.embedding && &layer != model_.head) return feed;
  feed.ids = feed.labels =
      at::randint(site.shape.vocab, {parallel::count(site.inner_tokens()), site.samples}, at::kLong)
          .to(options_.numerics.device);
  if (site.beside)
    feed.decoder_ids =
        at::randint(site.shape.vocab, {parallel::count(site.beside->inner_tokens()), site.samples},
                    at::kLong)
            .to(options_.numerics.device);
  feed.loss_scale = 1e-3;
  return feed;
}

at::Tensor MiniStep::run(std::size_t layer, at::Tensor x, Flight& flight) {
  parallel::Layer& one = *layers_[layer];
  one.parameters().wait_weights();
  if (one.gradients_in_forward()) one.parameters().begin_gradients();
  if (changes_streams(layer)) std::swap(x, flight.side.value);
  parallel::Feed enters = feed(one);
  enters.side = &flight.side;
  return one.forward(x, enters, flight.saved[layer]);
}

at::Tensor MiniStep::run_back(std::size_t layer, const at::Tensor& dy, Flight& flight,
                              parallel::WeightWork& work) {
  parallel::Feed enters;
  enters.side = &flight.side;
  at::Tensor dx = layers_[layer]->backward(dy, enters, flight.saved[layer], work);
  if (changes_streams(layer)) {
    // Nobody looked at the other one where the blocks are an encoder's.
    if (!flight.side.gradient.defined()) flight.side.gradient = at::zeros_like(flight.side.value);
    std::swap(dx, flight.side.gradient);
  }
  return dx;
}

// Of an encoder-decoder: whether the layer works on the stream that was beside the one before it,
// as a decoder's first block does, and a head right behind an encoder.
bool MiniStep::changes_streams(std::size_t layer) const {
  if (layer == 0) return false;
  const auto decodes = [&](std::size_t i) {
    const LayerShape& s = layers_[i]->site().shape;
    return s.kind == LayerKind::head || s.cross_tokens > 0;
  };
  return layers_.front()->site().beside != nullptr && decodes(layer) && !decodes(layer - 1);
}

template <class Between>
void MiniStep::pass(Between between) {
  copies_.clear();
  const std::size_t last = layers_.size() - 1;
  Flight flight{.saved = std::vector<parallel::Saved>(layers_.size()), .work = {}};
  const auto backward = [&](std::size_t layer, const at::Tensor& dy) {
    parallel::WeightWork work = weight_work_of(*layers_[layer]);
    layers_[layer]->parameters().begin_gradients();
    at::Tensor dx = run_back(layer, dy, flight, work);
    flight.saved[layer] = {};
    work.run();
    return dx;
  };
  between();
  at::Tensor x = run(0, {}, flight);
  between();
  for (std::size_t layer = 1; layer < last; ++layer) x = run(layer, x, flight);
  between();
  run(last, x, flight);
  between();
  at::Tensor gradient = backward(last, {});
  between();
  for (std::size_t layer = last; --layer > 0;) gradient = backward(layer, gradient);
  between();
  backward(0, gradient);
  between();
}

void MiniStep::begin_step() {
  pass([] {});
}

MiniStep::Times MiniStep::step() {
  std::vector<Moment> moments;
  pass([&] { moments.push_back(now()); });
  ops::synchronise(options_.numerics.device);
  const auto part = [&](std::size_t i) { return between(moments[i], moments[i + 1]); };
  return {.embedding_forward = part(0),
          .embedding_backward = part(5),
          .block_forward = part(1) / options_.blocks,
          .block_backward = part(4) / options_.blocks,
          .head_forward = part(2),
          .head_backward = part(3)};
}

MiniStep::Halves MiniStep::split_step() {
  const at::Device device = options_.numerics.device;
  const std::size_t last = layers_.size() - 1;
  Flight flight{.saved = std::vector<parallel::Saved>(layers_.size()),
                .work = std::vector<parallel::WeightWork>(layers_.size())};
  at::Tensor x = run(0, {}, flight);
  for (std::size_t layer = 1; layer < last; ++layer) x = run(layer, x, flight);
  at::Tensor gradient = x;  // of the right shape
  copies_.clear();
  const Moment begin = now();
  for (std::size_t layer = last; --layer > 0;)
    gradient = run_back(layer, gradient, flight, flight.work[layer]);
  const Moment middle = now();
  for (std::size_t layer = last; --layer > 0;) {
    layers_[layer]->parameters().begin_gradients();
    flight.work[layer].run();
  }
  const Moment end = now();
  ops::synchronise(device);
  return {.input = between(begin, middle) / options_.blocks,
          .weight = between(middle, end) / options_.blocks};
}

template <class Pass>
double MiniStep::bytes_beyond(const at::Tensor& enters, Pass pass) {
  const at::Device device = options_.numerics.device;
  const auto before = ops::allocated(device);
  if (!before) return -1;
  ops::reset_peak(device);
  const double kept = pass();
  const double peak = static_cast<double>(*ops::peak_allocated(device));
  // What enters is kept in forward and counted there; in backward it is short-lived itself.
  return peak - (static_cast<double>(*before) - bytes_of(enters)) - kept;
}

MiniStep::Workspace MiniStep::workspace() {
  const std::size_t last = layers_.size() - 1;
  Flight flight{.saved = std::vector<parallel::Saved>(layers_.size()), .work = {}};
  std::vector<double> most(layers_.size(), -1);
  at::Tensor x;
  for (std::size_t layer = 0; layer <= last; ++layer) {
    const at::Tensor enters = x;
    x.reset();
    most[layer] = bytes_beyond(enters, [&] {
      x = run(layer, enters, flight);
      return static_cast<double>(flight.saved[layer].bytes());
    });
  }
  at::Tensor gradient;
  for (std::size_t layer = last + 1; layer-- > 0;) {
    const at::Tensor enters = std::exchange(gradient, {});
    most[layer] = std::max(most[layer], bytes_beyond(enters, [&] {
                             parallel::WeightWork work = weight_work_of(*layers_[layer]);
                             layers_[layer]->parameters().begin_gradients();
                             gradient = run_back(layer, enters, flight, work);
                             work.run();
                             return 0.0;
                           }));
    flight.saved[layer] = {};
  }
  const auto blocks = std::ranges::subrange(most.begin() + 1, most.end() - 1);
  return {
      .embedding = most.front(), .block = *std::ranges::max_element(blocks), .head = most.back()};
}

}  // namespace braid::measure
