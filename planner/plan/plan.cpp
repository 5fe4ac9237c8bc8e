#include "planner/plan/plan.h"

namespace braid {

std::vector<int> layers_of(const StagePlan& stage) {
  std::vector<int> layers;
  for (const LayerRange& range : stage.chunks)
    for (int layer = range.begin; layer < range.end; ++layer) layers.push_back(layer);
  return layers;
}

}  // namespace braid
