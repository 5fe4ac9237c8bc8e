#pragma once
// A checkpoint of a plan that was trained for some steps.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "runtime/checkpoint/saver.h"
#include "tests/support/training.h"

namespace braid::checkpoint {

inline constexpr std::int64_t kStep = 2;

inline Manifest manifest_of(const Plan& plan) {
  Manifest manifest;
  manifest.program = "test";
  manifest.step = kStep;
  manifest.model = plan.model;
  return manifest;
}

inline void save(train::Worker& worker, const Plan& plan, comm::Group& world,
                 const std::filesystem::path& folder) {
  Saver saver({.run = folder, .keep = {}}, worker.model(), plan.model, world, at::kCPU);
  saver.begin(manifest_of(plan));
  const Saved saved = saver.finish();
  EXPECT_FALSE(saved.trouble) << saved.trouble->what << " " << saved.trouble->where;
}

inline train::WorkerOptions options_of(const parallel::Numerics& numerics) {
  train::WorkerOptions options;
  options.numerics = numerics;
  return options;
}

// Trains some steps and saves; returns the unsharded masters by Braid's names.
inline std::map<std::string, at::Tensor> train_and_save(const Plan& plan,
                                                        const parallel::Numerics& numerics,
                                                        const std::filesystem::path& folder) {
  std::map<std::string, at::Tensor> masters;
  std::mutex mutex;
  comm::run_in_process(plan.cluster.num_devices(), [&](comm::Group& world) {
    const at::NoGradGuard no_grad;
    train::Worker worker(plan, world, options_of(numerics), train::synthetic_samples(plan.model));
    for (std::int64_t step = 0; step < kStep; ++step) worker.step(step, train::kTestLearningRate);
    save(worker, plan, world, folder);
    std::map<std::string, at::Tensor> mine;
    train::collect(worker.model(), mine);
    const std::scoped_lock lock(mutex);
    for (auto& [name, tensor] : mine) {
      at::Tensor& target = masters[name];
      target = target.defined() ? target.where(tensor.isnan(), tensor) : tensor;
    }
  });
  return masters;
}

}  // namespace braid::checkpoint
