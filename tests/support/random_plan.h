#pragma once
// Plans drawn at random from all that the planner may emit, for models small enough to train in a
// test.

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "planner/model/huggingface.h"
#include "planner/model/model.h"
#include "planner/plan/plan.h"

namespace braid {

// Names of the tiny models: every family, and what two of them can be besides.
inline const std::vector<std::string> kTinyModels = [] {
  std::vector<std::string> names = huggingface::family_names();
  names.insert(names.end(), {"llama_tied", "t5_v1_1"});
  return names;
}();

// Eight heads, so that every degree up to eight divides them; a vocabulary that none divides.
Model tiny_model(const std::string& name, int blocks, std::int64_t sequence);

Cluster tiny_cluster(int devices);

// One device, one micro-batch: what every other plan is held against.
Plan reference_plan(const Model& model, std::int64_t global_batch);

// Blocks of one square of 16 devices, between an embedding and a head of as many megatron ranks.
Plan plan_of_sixteen(const std::string& model, std::int64_t batch, SquareVariant variant,
                     Recompute recompute);

// What squares a plan has, in words: how they walk, what their rows share, and how many there are.
std::vector<std::string> squares_in(const Plan& plan);
inline const std::vector<std::string> kAllSquares = {
    "plus_minus of samples", "plus_minus of samples, several",
    "plus_minus of tokens",  "plus_minus of tokens, several",
    "paper of samples",      "paper of tokens"};

class PlanDice {
 public:
  explicit PlanDice(std::uint64_t seed) : engine_(seed) {}

  Plan plan() { return drawn_plan(std::nullopt); }
  // Of this model, trained on batches of this size.
  Plan plan(const Model& model, std::int64_t global_batch) {
    return drawn_plan(Task{model, global_batch});
  }

  int number(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(engine_); }
  template <class T>
  const T& any(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(number(0, static_cast<int>(list.size()) - 1))];
  }

 private:
  struct Task {
    Model model;
    std::int64_t global_batch = 1;
  };

  Plan drawn_plan(const std::optional<Task>& task);
  Plan candidate(const std::optional<Task>& task);
  // The layers in order over the virtual stages, at random places.
  void cut(Plan& plan);
  // Every layer its own strategy, or runs of equal ones.
  void choose(Plan& plan);
  // Kinds of tensor parallelism equally often, and degrees of each, whatever the number of
  // strategies that they have.
  Strategy of_any_kind(const std::vector<Strategy>& legal);

  std::mt19937_64 engine_;
};

}  // namespace braid
