#pragma once
// Trains a plan for a few steps in fp64 and tells what came out.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/in_process.h"
#include "runtime/train/corrupted_spans.h"
#include "runtime/train/data.h"
#include "runtime/train/objective.h"
#include "runtime/train/worker.h"

namespace braid::train {

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> parameters;  // whole, by full name
};

// Synthetic tokens in samples of different lengths, from one token on.
class PaddedTokens : public Dataset {
 public:
  PaddedTokens(std::int64_t vocabulary, std::int64_t sequence)
      : tokens_(synthetic(vocabulary, 7)), sequence_(sequence) {}
  std::int64_t samples() const override { return 0; }
  std::int64_t vocabulary() const override { return tokens_->vocabulary(); }
  std::string describe() const override { return "padded"; }
  bool pads() const override { return true; }
  std::optional<std::int64_t> length(std::int64_t index) const override {
    const std::uint64_t random = mix(static_cast<std::uint64_t>(index));
    return static_cast<std::int64_t>(random % static_cast<std::uint64_t>(sequence_)) + 1;
  }
  void read(std::int64_t index, std::span<std::int64_t> tokens) const override {
    tokens_->read(index, tokens);
  }

 private:
  std::unique_ptr<Dataset> tokens_;
  std::int64_t sequence_;
};

// Of the model's objective; masked and corrupted ones are padded.
inline SampleSource synthetic_samples(const Model& model) {
  const std::int64_t vocab = model.types.front().shape.vocab;
  std::shared_ptr<const Dataset> data;
  switch (objective_of(model)) {
    case Objective::next_token:
      data = synthetic(vocab, 7);
      break;
    case Objective::masked_tokens:
      data = std::make_shared<PaddedTokens>(vocab - 1, model.sequence);
      break;
    case Objective::corrupted_spans:
      data = std::make_shared<PaddedTokens>(vocab - num_sentinels(model), model.sequence);
      break;
    case Objective::image_class:
      data = synthetic_images(image_shape_of(model), model.types.back().shape.vocab, 7);
      break;
  }
  return sample_source(model, data, {.seed = 7});
}

inline WorkerOptions fp64_options() {
  WorkerOptions options;
  options.numerics = parallel::fp64_numerics(at::kCPU);
  return options;
}

inline constexpr double kTestLearningRate = 3e-3;

// Puts this rank's slices where they belong in the whole parameters.
inline void collect(models::RankModel& model, std::map<std::string, at::Tensor>& whole) {
  for (parallel::Layer* layer : model.all()) {
    const parallel::Parameters& parameters = layer->parameters();
    const std::vector<at::Tensor> values = parameters.local_values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto id = static_cast<int>(i);
      const parallel::ParameterSpec& spec = parameters.specs()[i];
      at::Tensor& target = whole[parameters.full_name(id)];
      if (!target.defined()) target = at::full(spec.shape, NAN, values[i].options());
      parallel::local_slice(spec, parameters.local(id), target).copy_(values[i]);
    }
  }
}

// As one rank of `world`.
inline Outcome train_rank(const Plan& plan, comm::Group& world, int steps, WorkerOptions options) {
  at::NoGradGuard no_grad;
  Worker worker(plan, world, std::move(options), synthetic_samples(plan.model));
  Outcome outcome;
  for (int step = 0; step < steps; ++step)
    outcome.losses.push_back(worker.step(step, kTestLearningRate).loss);
  collect(worker.model(), outcome.parameters);
  return outcome;
}

// All ranks as threads; the losses of rank 0 and the parameters of all.
inline Outcome train_in_process(const Plan& plan, int steps,
                                const WorkerOptions& options = fp64_options()) {
  at::set_num_threads(1);
  Outcome all;
  std::mutex mutex;
  comm::run_in_process(plan.cluster.num_devices(), [&](comm::Group& world) {
    Outcome mine = train_rank(plan, world, steps, options);
    const std::scoped_lock lock(mutex);
    if (world.rank() == 0) all.losses = mine.losses;
    for (auto& [name, tensor] : mine.parameters) {
      at::Tensor& target = all.parameters[name];
      target = target.defined() ? target.where(tensor.isnan(), tensor) : tensor;
    }
  });
  return all;
}

}  // namespace braid::train
