// The search's certificate against every plan of small spaces, priced by the referee.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>

#include "planner/cost/make_cost_model.h"
#include "planner/simulate/price_plan.h"
#include "tests/referee/random_case.h"
#include "tests/referee/referee.h"
#include "tests/referee/space.h"

namespace braid::referee {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_long() { return std::getenv("BRAID_LONG_TESTS") != nullptr; }

constexpr int kParts = 5;  // that run as tests of their own
int problems_of_a_part() { return is_long() ? 1000 : 200; }
double most_plans() { return is_long() ? 200'000 : 20'000; }

double count_all(const SearchProblem& problem) {
  double plans = 0;
  for (const Plan& c : configurations(problem)) plans += count_plans(problem, c);
  return plans;
}

template <class T>
std::vector<T> some_of(CaseDice& dice, const std::vector<T>& all) {
  std::vector<T> some;
  for (const T& value : all)
    if (dice.chance(0.5)) some.push_back(value);
  if (some.empty()) some.push_back(dice.any(all));
  return some;
}

// A problem whose space can be enumerated.
SearchProblem drawn(CaseDice& dice) {
  while (true) {
    SearchProblem p;
    p.cluster = dice.cluster(dice.number(1, 6), 3);
    p.model = dice.model(dice.number(1, 4));
    p.options.precision = dice.any<Precision>({Precision::bf16, Precision::fp32});
    p.options.global_batch = dice.number(1, 8);
    p.options.alternatives = dice.number(0, 3);
    SpaceOptions& space = p.options.space;
    space.primepar = false;
    space.max_tp = dice.any<int>({0, 1, 2});
    space.max_cp = dice.any<int>({0, 1, 2});
    space.max_pp = dice.any<int>({0, 0, 1, 2});
    space.recompute = dice.chance(0.4);
    space.schedules =
        some_of<ScheduleKind>(dice, {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                     ScheduleKind::interleaved, ScheduleKind::zero_bubble});
    space.mesh_orders = some_of<MeshOrder>(
        dice, {MeshOrder::pp_dp_cp_tp, MeshOrder::dp_cp_tp_pp, MeshOrder::pp_tp_cp_dp});
    const double plans = count_all(p);
    if (plans >= 8 && plans <= most_plans()) return p;
  }
}

Bytes largest_peak(const Prediction& prediction) {
  Bytes peak;
  for (const StagePrediction& stage : prediction.stages) peak = std::max(peak, stage.peak);
  return peak;
}

std::unique_ptr<CostModel> cost_of(const SearchProblem& problem) {
  return make_cost_model({.precision = problem.options.precision,
                          .gradient_precision = problem.options.gradient_precision,
                          .global_batch = problem.options.global_batch},
                         problem.model, problem.cluster, nullptr);
}

// The smallest limit for one device that any plan fits.
Bytes least_memory(const SearchProblem& problem) {
  const auto cost = cost_of(problem);
  Bytes least(std::numeric_limits<std::int64_t>::max());
  for (Plan plan : configurations(problem))
    for_each_plan(problem, plan, [&](const std::vector<StagePlan>& stages) {
      plan.stages = stages;
      least = std::min(least, largest_peak(price_plan(plan, *cost)));
    });
  return least;
}

// Of all plans that fit.
struct Best {
  double seconds = kInfinity;
  Plan plan;
  int plans = 0;
};

Best best_of_all(const SearchProblem& problem) {
  const auto cost = cost_of(problem);
  const Bytes limit = problem.options.memory_limit;
  Best best;
  for (Plan plan : configurations(problem)) {
    Referee referee(plan, Simplifications::of_the_planner());
    for_each_plan(problem, plan, [&](const std::vector<StagePlan>& stages) {
      ++best.plans;
      const double seconds = referee.iteration(stages).value();
      if (seconds >= best.seconds) return;
      plan.stages = stages;
      if (limit > Bytes() && largest_peak(price_plan(plan, *cost)) > limit) return;
      best.seconds = seconds;
      best.plan = plan;
    });
  }
  return best;
}

SearchResult search_of(const SearchProblem& problem) {
  return search(problem.model, problem.cluster, nullptr, problem.options);
}

class Certificate : public testing::TestWithParam<int> {};

TEST_P(Certificate, NoPlanIsFasterThanTheBoundOrOutsideTheGap) {
  int largest = 0, limited = 0, missed = 0;
  double gap = 0, farthest = 0;
  for (int k = 0; k < problems_of_a_part() && !HasFailure(); ++k) {
    const int seed = k * kParts + GetParam();
    CaseDice dice(static_cast<std::uint64_t>(seed));
    SearchProblem problem = drawn(dice);
    SearchResult result = search_of(problem);
    ASSERT_TRUE(result.plan) << "seed " << seed;
    // Memory for some plan, and not for the fastest.
    if (dice.chance(0.3) && count_all(problem) < 1000) {
      const Bytes least = least_memory(problem), most = largest_peak(result.plan->prediction);
      problem.options.memory_limit = least + scaled(most - least, dice.number(0, 9) / 10.0);
      result = search_of(problem);
      ++limited;
    }
    const Best best = best_of_all(problem);
    largest = std::max(largest, best.plans);
    if (!result.plan) {
      ++missed;
      continue;
    }
    const double found = result.plan->prediction.iteration.value();
    constexpr double kRounding = 1e-9;
    EXPECT_LE(result.plan->certificate.lower_bound.value(), best.seconds * (1 + kRounding))
        << "seed " << seed << "\n"
        << plan_text(best.plan);
    EXPECT_GE(found, best.seconds * (1 - kRounding)) << "seed " << seed;
    EXPECT_LE(found, best.seconds * (1 + result.gap()) * (1 + kRounding)) << "seed " << seed;
    gap = std::max(gap, result.gap());
    farthest = std::max(farthest, found / best.seconds - 1);
  }
  // Where memory is tight the search adds up what layers need one by one, and may overlook the few
  // plans that fit because these needs do not meet.
  EXPECT_LE(missed, 1 + limited / 5);
  RecordProperty("largest_space", largest);
  RecordProperty("widest_gap", fmt::format("{:.3f}", gap));
  RecordProperty("farthest_from_the_best", fmt::format("{:.3f}", farthest));
  if (is_long())
    fmt::print(
        "largest space {} plans; {} problems short of memory, {} without an answer; widest "
        "gap {:.1f}%; farthest from the best {:.1f}%\n",
        largest, limited, missed, 100 * gap, 100 * farthest);
}

INSTANTIATE_TEST_SUITE_P(Spaces, Certificate, testing::Range(0, kParts));

}  // namespace
}  // namespace braid::referee
