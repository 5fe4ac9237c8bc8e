#pragma once
// What `braid validate` prints.

#include <string>

#include "planner/core/json_fwd.h"
#include "planner/explain/layout.h"
#include "planner/validate/fit.h"
#include "planner/validate/score.h"

namespace braid {

std::string render_scores(const Pricing& pricing, const ReserveScore& reserves,
                          const RenderOptions& options);
// The runs that were predicted worst, one line each.
std::string render_worst(const Pricing& pricing, int count, const RenderOptions& options);
// Every figure of a calibration: expected and fitted.
std::string render_parameters(std::vector<RunSetup>& setups, const RenderOptions& options);
Json parameters_json(std::vector<RunSetup>& setups);

// {"sets": [{"set", "rows", "mape", "spearman", "regret", …}], "reserved", "unpriced", "refused"};
// errors and regrets in percent.
Json scores_json(const Pricing& pricing, const ReserveScore& reserves);

// Predicted over measured, a panel a set, both axes logarithmic.
std::string scatter_svg(const Pricing& pricing);

}  // namespace braid
