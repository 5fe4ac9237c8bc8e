#include "runtime/train/worker.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "planner/core/error.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/ops/fused.h"
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
      groups_(world),
      inputs_(plan_, samples_, options_.numerics.device, options_.first_step,
              options_.first_sample),
      captured_(options_.numerics.device, why_launches_differ()) {
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

void Worker::read_tokens(std::int64_t step) {
  if (options_.numerics.device.is_meta()) return;
  const std::initializer_list<const Layer*> readers = {model_.embedding, model_.patches,
                                                       model_.head};
  for (int m = 0; m < plan_.shape.micro_batches; ++m)
    for (const Layer* layer : readers)
      if (layer != nullptr) inputs_.on_device(*layer, m, step);
}

namespace {

// As large as what a run reads, and without memory.
void feed_nothing(Feed& feed, const parallel::Site& site) {
  const at::TensorOptions numbers = at::TensorOptions(at::kLong).device(at::kMeta);
  const auto tokens = [&](const parallel::Site& of) {
    return at::empty({parallel::count(of.inner_tokens()), of.samples}, numbers);
  };
  if (site.shape.patch_inputs > 0) {
    feed.patches =
        at::empty({parallel::count(site.narrow_tokens), site.samples, site.shape.patch_inputs},
                  numbers.dtype(site.numerics.compute));
  } else if (site.shape.pooled) {
    feed.labels = at::empty({1, site.samples}, numbers);
  } else {
    feed.ids = feed.labels = tokens(site);
    if (site.beside) feed.decoder_ids = tokens(*site.beside);
  }
}

}  // namespace

Feed Worker::feed(const Layer& layer, int micro_batch, parallel::Pass pass) {
  const parallel::Site& site = layer.site();
  Feed feed;
  feed.loss_scale = loss_scale_;
  feed.sample = inputs_.first_sample(layer, micro_batch, step_);
  feed.step_key = ops::random_key(options_.seed, fmt::format("dropout {}", step_));
  const at::Device device = options_.numerics.device;
  const bool attends = site.shape.kind == LayerKind::block;
  if (attends && samples_.length)
    feed.lengths = sample_lengths(samples_, feed.sample, site.samples).to(device);
  const bool reads =
      &layer == model_.embedding || &layer == model_.patches || &layer == model_.head;
  if (!reads || pass == parallel::Pass::backward) return feed;
  if (device.is_meta()) {
    feed_nothing(feed, site);
    return feed;
  }
  const Tokens& read = inputs_.on_device(layer, micro_batch, step_);
  feed.ids = read.ids;
  feed.labels = read.labels;
  feed.decoder_ids = read.decoder_ids;
  feed.patches = read.patches;
  return feed;
}

double Worker::counted_predictions() const {
  const LayerShape& predicts = plan_.model.type_of(plan_.model.num_layers() - 1).shape;
  if (predicts.pooled) return static_cast<double>(plan_.global_batch);
  // An encoder-decoder predicts its decoder's tokens alone.
  const auto all = static_cast<double>(plan_.global_batch * predicts.tokens);
  if (!samples_.ignores_labels) return all;
  at::Tensor counted =
      at::zeros({1}, at::TensorOptions(at::kDouble).device(options_.numerics.device));
  const models::Head* head = model_.head;
  // A tensor group sees the same tokens: one of its ranks counts them.
  if (head != nullptr && (!head->site().megatron() || head->site().tensor_rank == 0))
    for (int m = 0; m < plan_.shape.micro_batches; ++m)
      counted.add_(
          inputs_.read(*head, m, step_).labels.ne(ops::kIgnoreLabel).sum().to(counted.device()));
  parallel::all_reduce(counted, world_, "count tokens");
  return std::max(1.0, counted.item<double>());
}

std::string Worker::why_launches_differ() const {
  if (!options_.capture) return "switched off";
  if (world_.size() > 1) return fmt::format("{} ranks wait for each other", world_.size());
  if (options_.model.dropout > 0) return "dropout draws anew in each step";
  if (samples_.ignores_labels || samples_.length)
    return "how many tokens count differs from step to step";
  if (options_.before_update) return "gradients are looked at before they are used";
  if (options_.watch) return "somebody watches each operation";
  if (options_.numerics.compute == at::kDouble) return "the host takes part in updates in fp64";
  for (const LayerType& type : plan_.model.types)
    if (type.shape.experts > 0) return "where tokens go decides how many an expert gets";
  return {};
}

void Worker::play() {
  parallel::play(list_, *stage_, options_.watch);
  stage_->finish_step();
}

void Worker::abandon() {
  stage_->abandon_step();
  if (model_.head != nullptr) model_.head->take_loss();
  for (parallel::FlatBuffer* buffer : buffers_) buffer->drop_gradients();
}

StepResult Worker::step(std::int64_t number, double learning_rate) {
  const auto begin = std::chrono::steady_clock::now();
  step_ = number;
  learning_rate_ = learning_rate;
  loss_scale_ = 1 / counted_predictions();
  if (const at::Device device = options_.numerics.device; !device.is_meta()) {
    if (device.is_cuda()) read_tokens(step_);
    const at::Tensor pace = ops::fused::adamw_pace(learning_rate_, options_.adamw.beta1,
                                                   options_.adamw.beta2, step_ + 1);
    send(pace, pace_, device);
  }
  captured_.run([this] { play(); }, [this] { abandon(); });
  if (unseen_) {
    const std::chrono::duration<double> launched = std::chrono::steady_clock::now() - begin;
    read_tokens(step_ + 1);  // while the device is at this one
    look_at_result();
    result_.launch = Seconds(launched.count());
  }
  // A captured step launches the same each time, so a single rank asks outside of it.
  if (world_.size() == 1) {
    result_.stopping = options_.stop && options_.stop();
    result_.saving = options_.save && options_.save();
  }
  return result_;
}

// All ranks learn together the loss, the norm and whether one is asked to stop, so that they end
// after the same step.
void Worker::update() {
  const parallel::ComputeScope scope(parallel::Phase::update, "");
  sums_ = at::zeros({3}, at::TensorOptions(at::kDouble).device(options_.numerics.device));
  loss_ = sums_.narrow(0, 0, 1);
  if (world_.size() > 1) {
    if (options_.stop && options_.stop()) sums_.narrow(0, 1, 1).fill_(1);
    if (options_.save && options_.save()) sums_.narrow(0, 2, 1).fill_(1);
  }
  if (model_.head != nullptr) loss_.add_(model_.head->take_loss(), loss_scale_);
  if (world_.size() > 1) {
    // The first that all stages do together: who is here early waits for the last to reduce.
    parallel::communicate(
        {.operation = "loss",
         .role = plan_.shape.stages > 1 ? parallel::Role::all_stages : parallel::Role::together},
        [&] { return world_.all_reduce(parallel::buffer_of(sums_), comm::Reduction::sum, "loss"); })
        .wait();
  }
  squares_ = gradient_squares(buffers_, world_);
  if (options_.before_change) options_.before_change();
  // Where one kernel does it all, the host reads loss and norm when the update is under way.
  unseen_ = takes_fused_adamw(buffers_);
  if (unseen_) {
    update_unseen();
  } else {
    look_at_result();
    if (options_.before_update) options_.before_update();
    const bool clips = options_.clip > 0 && result_.gradient_norm > options_.clip;
    adamw_step(buffers_, options_.adamw, learning_rate_, step_ + 1,
               clips ? options_.clip / result_.gradient_norm : 1);
  }
  weights_changed();
}

// With a scale that is not a number, and so without effect, where loss or norm are not finite.
void Worker::update_unseen() {
  const at::Tensor norm = squares_.sqrt();
  at::Tensor scale = norm.add(loss_).mul(0).add(1);
  if (options_.clip > 0) scale = scale.mul(norm.reciprocal().mul(options_.clip).clamp_max(1));
  if (options_.before_update) options_.before_update();
  fused_adamw_step(buffers_, options_.adamw, pace_, scale);
}

void Worker::look_at_result() {
  if (sums_.is_meta()) {
    result_ = {};
    return;
  }
  const at::Tensor sums = sums_.to(at::kCPU);
  const auto* sum = sums.data_ptr<double>();
  result_ = {.loss = sum[0],
             .gradient_norm = std::sqrt(squares_.item<double>()),
             .stopping = sum[1] > 0,
             .saving = sum[2] > 0};
  if (!std::isfinite(result_.loss) || !std::isfinite(result_.gradient_norm))
    throw Error({.what = fmt::format("loss {} and gradient norm {} at step {}", result_.loss,
                                     result_.gradient_norm, step_ + 1),
                 .where = fmt::format("rank {}", world_.rank()),
                 .fix = "lower the learning rate or look at the data of this step; parameters are "
                        "those of the step before"});
}

}  // namespace braid::train
