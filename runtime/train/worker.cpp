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
          .before_reduce = [this] { model_.send_gradients_of_copies(); },
          .update = [this] { update(); }});
  list_ = parallel::proven_schedule(
      plan_.shape)[static_cast<std::size_t>(stage_of(world.rank(), plan_.mesh()))];
  for (Layer* layer : model_.all()) {
    layer->parameters().initialise(options_.seed);
    for (parallel::FlatBuffer* buffer : layer->parameters().buffers()) buffers_.push_back(buffer);
  }
  weights_changed();
}

void Worker::weights_changed() { model_.send_copies(); }

std::int64_t Worker::first_sample(const Layer& layer, int micro_batch, std::int64_t step) const {
  return step * plan_.global_batch + micro_batch * plan_.micro_batch() + layer.site().first_sample;
}

Worker::Tokens Worker::tokens(const Layer& layer, int micro_batch, std::int64_t step) const {
  const parallel::Site& site = layer.site();
  const LayerShape& embedding = plan_.model.type_of(0).shape;
  const LayerShape& head = plan_.model.type_of(plan_.model.num_layers() - 1).shape;
  const auto inputs = static_cast<std::size_t>(embedding.tokens + embedding.carried_tokens);
  std::vector<std::int64_t> ids(inputs), labels(static_cast<std::size_t>(head.tokens));
  const auto rows = [&](const std::vector<parallel::Segment>& segments) {
    return at::empty({parallel::count(segments), site.samples}, at::kLong);
  };
  // One sample's column of `to`: the values of its tokens.
  const auto fill = [&](const at::Tensor& to, const std::vector<parallel::Segment>& segments,
                        std::int64_t sample, const std::int64_t* values) {
    auto* out = to.data_ptr<std::int64_t>() + sample;
    for (const parallel::Segment& s : segments)
      for (std::int64_t t = s.begin; t < s.end; ++t, out += site.samples) *out = values[t];
  };
  const bool embeds = site.shape.kind == LayerKind::embedding;
  Tokens tokens;
  (embeds ? tokens.ids : tokens.labels) = rows(site.inner_tokens());
  if (site.beside) tokens.decoder_ids = rows(site.beside->inner_tokens());
  const std::int64_t first = first_sample(layer, micro_batch, step);
  for (std::int64_t sample = 0; sample < site.samples; ++sample) {
    samples_.read(first + sample, ids, labels);
    fill(embeds ? tokens.ids : tokens.labels, site.inner_tokens(), sample,
         embeds ? ids.data() : labels.data());
    if (site.beside)
      fill(tokens.decoder_ids, site.beside->inner_tokens(), sample, ids.data() + embedding.tokens);
  }
  return tokens;
}

// From pinned memory: an ordinary copy would wait for all that the device was given before.
Worker::Tokens Worker::tokens_on_device(const Layer& layer, int micro_batch,
                                        std::int64_t step) const {
  const at::Device device = options_.numerics.device;
  const auto sent = [&](const at::Tensor& x) {
    if (!x.defined()) return x;
    return device.is_cuda() ? x.pin_memory().to(device, /*non_blocking=*/true) : x.to(device);
  };
  const Tokens read = tokens(layer, micro_batch, step);
  return {sent(read.ids), sent(read.labels), sent(read.decoder_ids)};
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
    const auto empty = [&](const parallel::Site& of) {
      return at::empty({parallel::count(of.inner_tokens()), of.samples},
                       at::TensorOptions(at::kLong).device(device));
    };
    feed.ids = feed.labels = empty(site);
    if (site.beside) feed.decoder_ids = empty(*site.beside);
    return feed;
  }
  const auto ahead =
      ahead_step_ == step_ ? ahead_.extract(std::pair(&layer, micro_batch)) : Ahead::node_type();
  const Tokens read = ahead.empty() ? tokens_on_device(layer, micro_batch, step_) : ahead.mapped();
  feed.ids = read.ids;
  feed.labels = read.labels;
  feed.decoder_ids = read.decoder_ids;
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
      counted.add_(tokens(*head, m, step_).labels.ne(ops::kIgnoreLabel).sum().to(counted.device()));
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
