#pragma once
// Sources say a part of how a run was split. The rest is filled in as its program would have done
// it: the fastest that fits, by our own prices.

#include "planner/validate/run.h"
#include "planner/validate/split.h"

namespace braid {

RunSplit complete(const MeasuredRun& run, const ModelShape& model, const RunSetup& setup);

}  // namespace braid
