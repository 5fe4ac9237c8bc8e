#pragma once
// Trains a plan for a few steps in fp64 and tells what came out.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/comm/in_process.h"
#include "runtime/train/data.h"
#include "runtime/train/worker.h"

namespace braid::train {

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> parameters;  // whole, by full name
};

inline SampleSource synthetic_samples(const Model& model) {
  std::shared_ptr<const Dataset> data = synthetic(model.types.front().shape.vocab, 7);
  return {.read =
              [data](std::int64_t sample, std::span<std::int64_t> inputs,
                     std::span<std::int64_t> labels) {
                std::vector<std::int64_t> tokens(inputs.size() + 1);
                data->read(sample, tokens);
                std::copy(tokens.begin(), tokens.end() - 1, inputs.begin());
                std::copy(tokens.begin() + 1, tokens.end(), labels.begin());
              },
          .ignores_labels = false};
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
