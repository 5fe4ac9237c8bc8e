#pragma once
// The figures that were fitted, as the last calibration left them.

#include <vector>

#include "planner/validate/setup.h"

namespace braid {

void apply_fitted(std::vector<RunSetup>& setups);

}  // namespace braid
