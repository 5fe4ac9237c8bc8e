#pragma once
// PrimePar's answer for people and for programs.

#include <optional>
#include <string>
#include <vector>

#include "planner/core/json_fwd.h"
#include "planner/explain/layout.h"
#include "planner/primepar/executable.h"
#include "planner/primepar/schemes.h"

namespace braid {

struct PrimeparAnswer {
  std::string model, cluster;
  int devices = 1;
  PrimeparTask task;
  PrimeparVariant variant = PrimeparVariant::plus_minus;
  double alpha = 0;
  LayerGraph graph;
  PrimeparResult result;
  double search_seconds = 0;
  std::vector<SchemePlan> schemes;            // every split of each
  std::vector<ParetoPoint> pareto;            // by boundary; empty where nobody asked
  std::optional<ExecutableIndex> executable;  // what the layer search knows; with `pareto`
};

std::string render_primepar(const PrimeparAnswer& answer, const RenderOptions& options);
Json primepar_json(const PrimeparAnswer& answer);

}  // namespace braid
