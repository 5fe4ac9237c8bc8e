#pragma once
// What a search can ask a profile of layers, so that nothing else is measured.

#include <compare>
#include <cstdint>
#include <vector>

#include "planner/search/decision_tree.h"

namespace braid {

// One device's share of a layer: what its compute depends on. Data parallelism only sets how many
// samples it gets, and ZeRO changes no product.
struct LayerQuestion {
  TensorKind kind = TensorKind::megatron;
  int tp = 1, cp = 1;
  std::int64_t samples = 1;
  constexpr auto operator<=>(const LayerQuestion&) const = default;
};

struct Questions {
  std::vector<LayerQuestion> asked;  // by split, then samples
  int possible = 0;                  // all splits over at most all devices × all micro-batches
  int reachable = 0;                 // that a legal plan of the space can ask for and that fit
};

struct QuestionOptions {
  std::int64_t global_batch = 1;
  Precision precision = Precision::bf16;
  Bytes memory;  // of one device; zero: whatever is asked fits
  SpaceOptions space;
};

// Times are smooth in the samples: of each split the fewest and the most, and between them steps of
// at least two.
Questions layer_questions(const Model& model, const Cluster& cluster,
                          const QuestionOptions& options);

}  // namespace braid
