#include "runtime/train/worker.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "planner/core/error.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/ops/random.h"
#include "runtime/parallel/collectives.h"
#include "runtime/parallel/recorder.h"
#include "runtime/train/sample_tensors.h"

namespace braid::train {

using parallel::Feed;
using parallel::Layer;

Worker::Worker(const Plan& plan, comm::Group& world, WorkerOptions options, SampleSource samples)
    : plan_(plan),
      world_(world),
      options_(std::move(options)),
      samples_(std::move(samples)),
      groups_(world) {
  const int devices = plan_.cluster.num_devices();
  if (world.size() != devices)
    throw Error(
        {.what = fmt::format("{} ranks for a plan of {} devices", world.size(), devices),
         .where = "the number of ranks",
         .fix = fmt::format("start {} ranks, or plan for {} devices", devices, world.size())});
  model_ = models::build(plan_, world.rank(), options_.numerics, groups_, options_.model);
  stage_ = std::make_unique<parallel::Stage>(
      plan_, world.rank(), models::is_causal(plan_.model), options_.numerics, model_.all(), groups_,
      parallel::StageHooks{
          .feed = [this](const Layer& layer, int micro_batch,
                         parallel::Pass pass) { return feed(layer, micro_batch, pass); },
          .before_reduce =
              [this] {
                if (model_.tied) model_.tied->send_gradients();
              },
          .update = [this] { update(); }});
  list_ = parallel::proven_schedule(
      plan_.shape)[static_cast<std::size_t>(stage_of(world.rank(), plan_.mesh()))];
  for (Layer* layer : model_.all()) {
    layer->parameters().initialise(options_.seed);
    for (parallel::FlatBuffer* buffer : layer->parameters().buffers()) buffers_.push_back(buffer);
  }
  weights_changed();
}

void Worker::weights_changed() {
  if (model_.tied) model_.tied->send_weights();
}

std::int64_t Worker::first_sample(const Layer& layer, int micro_batch, std::int64_t step) const {
  return step * plan_.global_batch + micro_batch * plan_.micro_batch() + layer.site().first_sample;
}

Worker::Tokens Worker::tokens(const Layer& layer, int micro_batch, std::int64_t step) const {
  const parallel::Site& site = layer.site();
  const std::int64_t count = parallel::count(site.inner_tokens());
  at::Tensor ids = at::empty({count, site.samples}, at::kLong);
  at::Tensor labels = at::empty({count, site.samples}, at::kLong);
  const auto sequence = static_cast<std::size_t>(site.shape.tokens);
  std::vector<std::int64_t> inputs(sequence), targets(sequence);
  const std::int64_t first = first_sample(layer, micro_batch, step);
  auto* id = ids.data_ptr<std::int64_t>();
  auto* label = labels.data_ptr<std::int64_t>();
  for (std::int64_t sample = 0; sample < site.samples; ++sample) {
    samples_.read(first + sample, inputs, targets);
    std::int64_t row = 0;
    for (const parallel::Segment& s : site.inner_tokens())
      for (std::int64_t t = s.begin; t < s.end; ++t, ++row) {
        id[row * site.samples + sample] = inputs[static_cast<std::size_t>(t)];
        label[row * site.samples + sample] = targets[static_cast<std::size_t>(t)];
      }
  }
  return {ids, labels};
}

// From pinned memory: an ordinary copy would wait for all that the device was given before.
Worker::Tokens Worker::tokens_on_device(const Layer& layer, int micro_batch,
                                        std::int64_t step) const {
  const at::Device device = options_.numerics.device;
  const auto sent = [&](const at::Tensor& x) {
    return device.is_cuda() ? x.pin_memory().to(device, /*non_blocking=*/true) : x.to(device);
  };
  const auto [ids, labels] = tokens(layer, micro_batch, step);
  return {sent(ids), sent(labels)};
}

void Worker::read_ahead() {
  ahead_.clear();
  ahead_step_ = step_ + 1;
  if (plan_.model.type_of(plan_.model.num_layers() - 1).shape.pooled) return;
  for (int m = 0; m < plan_.shape.micro_batches; ++m)
    for (const Layer* layer :
         {static_cast<const Layer*>(model_.embedding), static_cast<const Layer*>(model_.head)})
      if (layer != nullptr)
        ahead_.emplace(std::pair(layer, m), tokens_on_device(*layer, m, ahead_step_));
}

Feed Worker::feed(const Layer& layer, int micro_batch, parallel::Pass pass) {
  const parallel::Site& site = layer.site();
  Feed feed;
  feed.loss_scale = loss_scale_;
  feed.sample = first_sample(layer, micro_batch, step_);
  feed.step_key = ops::random_key(options_.seed, fmt::format("dropout {}", step_));
  const at::Device device = options_.numerics.device;
  const bool attends = site.shape.kind == LayerKind::block;
  if (attends && samples_.length)
    feed.lengths = sample_lengths(samples_, feed.sample, site.samples).to(device);
  const bool reads =
      &layer == model_.embedding || &layer == model_.patches || &layer == model_.head;
  if (!reads || pass == parallel::Pass::backward) return feed;
  if (&layer == model_.patches) {
    feed.patches = sample_patches(samples_, feed.sample, site);
    return feed;
  }
  if (site.shape.pooled) {
    feed.labels = sample_classes(samples_, feed.sample, site.samples, device);
    return feed;
  }
  if (device.is_meta()) {
    feed.ids = feed.labels = at::empty({parallel::count(site.inner_tokens()), site.samples},
                                       at::TensorOptions(at::kLong).device(device));
    return feed;
  }
  const auto ahead =
      ahead_step_ == step_ ? ahead_.extract(std::pair(&layer, micro_batch)) : Ahead::node_type();
  auto [ids, labels] = ahead.empty() ? tokens_on_device(layer, micro_batch, step_) : ahead.mapped();
  feed.ids = std::move(ids);
  feed.labels = std::move(labels);
  return feed;
}

double Worker::counted_predictions() const {
  const bool pooled = plan_.model.type_of(plan_.model.num_layers() - 1).shape.pooled;
  if (pooled) return static_cast<double>(plan_.global_batch);
  const auto all = static_cast<double>(plan_.global_batch * plan_.model.sequence);
  if (!samples_.ignores_labels) return all;
  at::Tensor counted =
      at::zeros({1}, at::TensorOptions(at::kDouble).device(options_.numerics.device));
  const models::Head* head = model_.head;
  // A tensor group sees the same tokens: one of its ranks counts them.
  if (head != nullptr && (!head->site().megatron() || head->site().tensor_rank == 0))
    for (int m = 0; m < plan_.shape.micro_batches; ++m)
      counted.add_(tokens(*head, m, step_).second.ne(ops::kIgnoreLabel).sum().to(counted.device()));
  parallel::all_reduce(counted, world_, "count tokens");
  return std::max(1.0, counted.item<double>());
}

StepResult Worker::step(std::int64_t number, double learning_rate) {
  step_ = number;
  learning_rate_ = learning_rate;
  loss_scale_ = 1 / counted_predictions();
  parallel::play(list_, *stage_);
  stage_->finish_step();
  return result_;
}

// All ranks learn loss and norm together, so that they stop together when one is not a number.
void Worker::update() {
  const parallel::ComputeScope scope(parallel::Phase::update, "");
  at::Tensor loss = at::zeros({1}, at::TensorOptions(at::kDouble).device(options_.numerics.device));
  if (model_.head != nullptr) loss.add_(model_.head->take_loss(), loss_scale_);
  if (world_.size() > 1) {
    // The first that all stages do together: who is here early waits for the last to reduce.
    parallel::communicate(
        {.operation = "loss",
         .role = plan_.shape.stages > 1 ? parallel::Role::all_stages : parallel::Role::together},
        [&] { return world_.all_reduce(parallel::buffer_of(loss), comm::Reduction::sum, "loss"); })
        .wait();
  }
  const at::Tensor squares = gradient_squares(buffers_, world_);
  // Where one kernel does it all, the host reads loss and norm when the update is under way, and
  // the next step's tokens before it waits for them.
  if (takes_fused_adamw(buffers_)) {
    update_unseen(loss, squares);
    read_ahead();
    look_at(loss, squares);
  } else {
    look_at(loss, squares);
    if (options_.before_update) options_.before_update();
    const bool clips = options_.clip > 0 && result_.gradient_norm > options_.clip;
    adamw_step(buffers_, options_.adamw, learning_rate_, step_ + 1,
               clips ? options_.clip / result_.gradient_norm : 1);
  }
  weights_changed();
}

// With a scale that is not a number, and so without effect, where loss or norm are not finite.
void Worker::update_unseen(const at::Tensor& loss, const at::Tensor& squares) {
  const at::Tensor norm = squares.sqrt();
  at::Tensor scale = norm.add(loss).mul(0).add(1);
  if (options_.clip > 0) scale = scale.mul(norm.reciprocal().mul(options_.clip).clamp_max(1));
  if (options_.before_update) options_.before_update();
  fused_adamw_step(buffers_, options_.adamw, learning_rate_, step_ + 1, scale);
}

void Worker::look_at(const at::Tensor& loss, const at::Tensor& squares) {
  const bool dry = loss.is_meta();
  result_ = {.loss = dry ? 0 : loss.item<double>(),
             .gradient_norm = dry ? 0 : std::sqrt(squares.item<double>())};
  if (!std::isfinite(result_.loss) || !std::isfinite(result_.gradient_norm))
    throw Error({.what = fmt::format("loss {} and gradient norm {} at step {}", result_.loss,
                                     result_.gradient_norm, step_),
                 .where = fmt::format("rank {}", world_.rank()),
                 .fix = "lower the learning rate or look at the data of this step; parameters are "
                        "those of the step before"});
}

}  // namespace braid::train
