#include "planner/explain/utilisation.h"

#include <fmt/core.h>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/layout.h"
#include "planner/explain/summary.h"
#include "planner/search/certificate.h"

namespace braid {

namespace {

constexpr double kRounding = 1e-6;  // relative; the order of a sum may differ

template <class Quantity>
Json number(const std::optional<Quantity>& value) {
  return value ? Json(value->value()) : Json(nullptr);
}

// The resource that binds the physics bound, and the key of a cluster file that gives it.
struct Limit {
  const char* resource;
  const char* key;
};
Limit limit_of(const PhysicsBound& bound) {
  if (bound.total() == bound.compute) return {"peak FLOPs", "peak"};
  if (bound.total() == bound.states) return {"devices' memories", "memory_bandwidth"};
  return {"links", "bandwidth"};
}

std::string fix_of(const Plan& plan, Timing timing, const Limit& limit) {
  std::string correct =
      fmt::format("correct \"{}\" of {} in the cluster", limit.key,
                  plan.cluster.device_types.size() == 1
                      ? fmt::format("'{}'", printable(plan.cluster.device_types[0].name))
                      : "its devices");
  if (timing == Timing::measured)
    return correct + ", which is too low, or measure it: braid profile hardware --out FILE";
  if (plan.profile) return "measure the profile again: braid profile model; or " + correct;
  return correct;
}

}  // namespace

double mfu_of(Flops work, Seconds time, FlopsPerSecond peak) { return work / peak / time; }

Utilisation utilisation(const Plan& plan, Seconds iteration) {
  Utilisation figures;
  figures.iteration = iteration;
  figures.samples_per_second = static_cast<double>(plan.global_batch) / iteration.value();
  figures.tokens_per_second = figures.samples_per_second * static_cast<double>(plan.model.sequence);
  if (!knows_shapes(plan.model)) return figures;
  figures.sample_flops = training_flops(plan.model);
  figures.mfu = mfu_of(*figures.sample_flops * static_cast<double>(plan.global_batch), iteration,
                       cluster_peak(plan.cluster, plan.precision));
  figures.physics =
      physics_bound(plan.model, plan.cluster, plan.global_batch, plan.precision).total();
  return figures;
}

Json to_json(const Utilisation& figures) {
  return {{"iteration_seconds", figures.iteration.value()},
          {"samples_per_second", figures.samples_per_second},
          {"tokens_per_second", figures.tokens_per_second},
          {"flops_per_sample", number(figures.sample_flops)},
          {"mfu", figures.mfu ? Json(*figures.mfu) : Json(nullptr)},
          {"physics_bound_seconds", number(figures.physics)}};
}

void expect_possible(const Plan& plan, Seconds iteration, Timing timing, const std::string& where) {
  if (!knows_shapes(plan.model)) return;
  const PhysicsBound bound =
      physics_bound(plan.model, plan.cluster, plan.global_batch, plan.precision);
  if (iteration >= (1 - kRounding) * bound.total()) return;
  const Limit limit = limit_of(bound);
  throw Error({.what = fmt::format("an iteration of {} is {:.3g} times as fast as {} allow "
                                   "({}; MFU {})",
                                   format_seconds(iteration), bound.total() / iteration,
                                   limit.resource, format_seconds(bound.total()),
                                   format_percent(*utilisation(plan, iteration).mfu)),
               .where = where,
               .fix = fix_of(plan, timing, limit)});
}

void expect_possible(const Plan& plan) {
  expect_possible(plan, plan.prediction.iteration, Timing::predicted,
                  plan.profile ? plan.profile->file : "cluster: " + plan.cluster.name);
}

void expect_possible(double mfu, const std::string& where, const std::string& fix) {
  if (mfu <= 1 + kRounding) return;
  throw Error(
      {.what = fmt::format("MFU {}: devices cannot do more than their peak", format_percent(mfu)),
       .where = where,
       .fix = fix});
}

}  // namespace braid
