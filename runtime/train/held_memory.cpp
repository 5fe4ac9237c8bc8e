#include "runtime/train/held_memory.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "runtime/ops/device.h"
#include "runtime/parallel/collectives.h"

namespace braid::train {

namespace {

constexpr std::int64_t kTerms = 5;
constexpr std::int64_t kUnknown = -1;

HeldMemory larger(const HeldMemory& a, const HeldMemory& b) {
  return {.weights = std::max(a.weights, b.weights),
          .gradients = std::max(a.gradients, b.gradients),
          .optimizer = std::max(a.optimizer, b.optimizer),
          .activations = std::max(a.activations, b.activations),
          .allocated = std::max(a.allocated, b.allocated)};
}

}  // namespace

HeldMemory held_by(Worker& worker, at::Device device) {
  const parallel::FlatBuffer::Usage states = worker.model().bytes();
  HeldMemory held{.weights = Bytes(states.weights),
                  .gradients = Bytes(states.gradients),
                  .optimizer = Bytes(states.optimizer),
                  .activations = Bytes(worker.stage().peak_saved()),
                  .allocated = std::nullopt};
  if (const auto peak = ops::peak_allocated(device)) held.allocated = Bytes(*peak);
  return held;
}

std::vector<HeldMemory> gather_held(const HeldMemory& mine, at::Device device, comm::Group& world) {
  at::Tensor words = at::empty({kTerms}, at::kLong);
  auto* word = words.data_ptr<std::int64_t>();
  *word++ = mine.weights.value();
  *word++ = mine.gradients.value();
  *word++ = mine.optimizer.value();
  *word++ = mine.activations.value();
  // Beside the allocator's: what the groups hold for whole tensors.
  *word = mine.allocated ? mine.allocated->value() + world.allocated() : kUnknown;
  const at::Tensor all =
      parallel::all_gather(words.to(device), world, "memory of all ranks").to(at::kCPU);
  const auto* at = all.data_ptr<std::int64_t>();
  std::vector<HeldMemory> ranks;
  for (int rank = 0; rank < world.size(); ++rank, at += kTerms) {
    HeldMemory held{Bytes(at[0]), Bytes(at[1]), Bytes(at[2]), Bytes(at[3]), std::nullopt};
    if (at[4] != kUnknown) held.allocated = Bytes(at[4]);
    ranks.push_back(held);
  }
  return ranks;
}

std::vector<HeldMemory> largest_of_stages(std::span<const HeldMemory> ranks, const Plan& plan) {
  std::vector<HeldMemory> stages(static_cast<std::size_t>(plan.shape.stages));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    HeldMemory& stage =
        stages[static_cast<std::size_t>(stage_of(static_cast<int>(rank), plan.mesh()))];
    stage = larger(stage, ranks[rank]);
  }
  return stages;
}

}  // namespace braid::train
