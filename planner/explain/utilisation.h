#pragma once
// How much of the hardware an iteration uses, and the refusal of figures that would use more than
// there is. Everything that prints or writes an MFU takes it from here.

#include <optional>
#include <string>

#include "planner/core/json_fwd.h"
#include "planner/core/units.h"
#include "planner/plan/plan.h"

namespace braid {

// FLOPs over what devices of `peak` together could have done in the time: model FLOPs utilisation.
double mfu_of(Flops work, Seconds time, FlopsPerSecond peak);

struct Utilisation {
  Seconds iteration;
  double samples_per_second = 0, tokens_per_second = 0;
  // None where the layers' shapes are not known (a profile of another system carries times only).
  std::optional<Flops> sample_flops;  // forward and backward
  std::optional<double> mfu;
  std::optional<Seconds> physics;  // no plan at all is faster
};
// Of a plan whose iteration takes so long, as predicted or as measured.
Utilisation utilisation(const Plan& plan, Seconds iteration);
Json to_json(const Utilisation& figures);

enum class Timing { predicted, measured };

// Error where an iteration is shorter than peak FLOPs, memory and links of the plan's cluster
// allow: then a time of the profile, or a figure of the cluster, is wrong. `where` names a file or
// flag.
void expect_possible(const Plan& plan, Seconds iteration, Timing timing, const std::string& where);
void expect_possible(const Plan& plan);  // its prediction; names its profile
// The same for an MFU alone.
void expect_possible(double mfu, const std::string& where, const std::string& fix);

}  // namespace braid
