#pragma once
// Parts of a plan that the user fixes; the search chooses the others.

#include <cstdint>
#include <optional>
#include <string>

#include "planner/cluster/cluster.h"
#include "planner/core/error.h"
#include "planner/model/model.h"
#include "planner/strategy/pipeline.h"
#include "planner/strategy/strategy.h"

namespace braid {

struct SpaceOptions;

// Unset: the search chooses. A part of the strategy holds for every layer that can have it: ep for
// layers with experts, recompute for all but embedding and head, tp_kind where tp > 1 and, if it is
// spatial_temporal, for blocks; other layers then have 1, none and megatron.
struct FixedParts {
  std::optional<int> tp = std::nullopt, cp = std::nullopt, dp = std::nullopt, ep = std::nullopt;
  std::optional<TensorKind> tp_kind = std::nullopt;
  std::optional<Zero> zero = std::nullopt;
  std::optional<Recompute> recompute = std::nullopt;
  std::optional<int> stages = std::nullopt, chunks = std::nullopt, micro_batches = std::nullopt;
  // Samples of a micro-batch on each data-parallel replica (Megatron-LM's micro-batch size):
  // micro-batches · dp · this is the global batch.
  std::optional<std::int64_t> replica_samples = std::nullopt;

  bool any() const { return !to_string().empty(); }
  // As flags of `braid plan`: "--tp 4 --pp 8". Empty where nothing is fixed.
  std::string to_string() const;

  // Whether a layer of this shape may have the strategy, at some micro-batch or at one of
  // `micro_batch` samples over all replicas.
  bool allows(const LayerShape& layer, const Strategy& strategy) const;
  bool allows(const LayerShape& layer, const Strategy& strategy, std::int64_t micro_batch) const;
  // `micro_batch`: samples over all replicas; `stage_devices`: of one stage.
  bool allows(const PipelineShape& shape, std::int64_t micro_batch, int stage_devices) const;

  bool operator==(const FixedParts&) const = default;
};

// Throws Error unless every part is possible for this model, cluster and batch, and all parts
// together leave at least one legal choice to every layer. Memory plays no part.
void check_fixed(const SpaceOptions& space, const Model& model, const Cluster& cluster,
                 std::int64_t global_batch);

}  // namespace braid
