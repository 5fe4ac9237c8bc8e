#include "planner/explain/calibration.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/cost/make_cost_model.h"
#include "planner/simulate/predicted_terms.h"
#include "planner/simulate/price_plan.h"

namespace braid {

namespace {

Plan priced(const Plan& plan, const Profile& profile, const Correction& correction) {
  Profile corrected = profile;
  corrected.correction = correction;
  const auto cost = make_cost_model(
      {CostKind::measured, plan.precision, plan.gradient_precision, plan.global_batch}, plan.model,
      plan.cluster, &corrected);
  Plan result = plan;
  result.prediction = price_plan(plan, *cost);
  return result;
}

// The first figure in which the profile's cluster is another than the run's. One machine has others
// over each backend, and whenever it is measured anew.
std::string cluster_difference(const Profile& profile, const Cluster& ran) {
  const Json there = to_json(*profile.cluster).flatten();
  const Json here = to_json(ran).flatten();
  const auto value = [](const Json& flat, const std::string& key) {
    return flat.contains(key) ? flat.at(key).dump(-1, ' ', false, Json::error_handler_t::replace)
                              : std::string("nothing");
  };
  std::string text;
  for (const Json* side : {&there, &here})
    for (const auto& [key, unused] : side->items())
      if (text.empty() && value(there, key) != value(here, key))
        text = fmt::format("cluster{}: {} in the profile, {} in the run", key, value(there, key),
                           value(here, key));
  if (profile.cluster->name != ran.name) return text;
  const auto backend = std::ranges::find(profile.taken_on, "backend", &Fact::name);
  const std::string over = backend == profile.taken_on.end()
                               ? std::string("another backend")
                               : fmt::format("another backend than {}", backend->value);
  return fmt::format("{} (the same machine over {}, or measured anew)", text, over);
}

void expect_same_task(const Profile& profile, const ReportSource& source) {
  const Plan& plan = source.report.plan;
  std::vector<std::string> differ;
  if (profile.model && to_json(*profile.model) != to_json(plan.model))
    differ.push_back(fmt::format("model: {} of {} tokens then, {} of {} tokens now",
                                 profile.model->name, profile.model->sequence, plan.model.name,
                                 plan.model.sequence));
  if (profile.cluster && to_json(*profile.cluster) != to_json(plan.cluster))
    differ.push_back(cluster_difference(profile, plan.cluster));
  if (profile.precision != plan.precision)
    differ.push_back(fmt::format("precision: {} then, {} now", name_of(profile.precision),
                                 name_of(plan.precision)));
  if (differ.empty()) return;
  throw Error(
      {.what = fmt::format("the run does not belong to the profile: {}", join(differ, "; ")),
       .where = source.name,
       .fix = "calibrate with runs of plans that were made from this profile"});
}

struct SteadyTerm {
  CorrectionFactor factor;
  Seconds (*of)(const StepTerms& terms);
};
constexpr SteadyTerm kSteadyTerms[] = {
    {&Correction::compute, [](const StepTerms& t) { return t.compute; }},
    {&Correction::tensor,
     [](const StepTerms& t) {
       return t.tensor.exposed + t.expert.exposed + t.redistribute.exposed;
     }},
    {&Correction::update, [](const StepTerms& t) { return t.update; }},
};

}  // namespace

std::vector<CalibrationCase> calibration_cases(const Profile& profile,
                                               const std::vector<ReportSource>& reports) {
  // A step of a run is the median of a few.
  constexpr double kSteps = 4;
  const double noise = profile.noise ? profile.noise->deviation() / std::sqrt(kSteps) : 0;
  std::vector<CalibrationCase> cases;
  for (const ReportSource& source : reports) {
    expect_same_task(profile, source);
    const RunReport& report = source.report;
    CalibrationCase one{.measured = report.step,
                        .noise = noise,
                        .price = [&profile, &report](const Correction& correction) {
                          return priced(report.plan, profile, correction).prediction.iteration;
                        }};
    const std::vector<StepTerms> predicted =
        predicted_terms(priced(report.plan, profile, Correction{}));
    for (std::size_t stage = 0; stage < report.stages.size(); ++stage) {
      if (!report.stages[stage].measured) continue;
      for (const SteadyTerm& term : kSteadyTerms)
        one.terms.push_back(
            {term.factor, term.of(predicted[stage]), term.of(*report.stages[stage].measured)});
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

std::vector<CalibrationRow> calibration_rows(const std::vector<ReportSource>& reports,
                                             const std::vector<CalibrationCase>& cases,
                                             const Correction& before, const Correction& after) {
  std::vector<CalibrationRow> rows;
  rows.reserve(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i)
    rows.push_back(
        {reports[i].name, cases[i].measured, cases[i].price(before), cases[i].price(after)});
  return rows;
}

}  // namespace braid
