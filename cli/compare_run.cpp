// The plans of `braid compare` at work, one after the other in one world.

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "cli/compare.h"
#include "cli/interrupt.h"
#include "cli/train.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/text.h"
#include "runtime/measure/bench.h"
#include "runtime/measure/machine.h"
#include "runtime/measure/room.h"
#include "runtime/ops/device.h"
#include "runtime/parallel/collectives.h"

namespace braid::cli {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr int kRecorded = 2;    // of a plan's first round, after those that count
constexpr double kRate = 1e-4;  // small enough that no loss runs away within some steps

std::string plans_text(const std::vector<Plan>& plans) {
  Json list = Json::array();
  for (const Plan& plan : plans) list.push_back(to_json(plan));
  return list.dump();
}

std::vector<Plan> plans_from_text(const std::string& text) {
  std::vector<Plan> plans;
  const Json list = parse_json(text, "rank 0");
  for (const JsonValue& v : JsonValue(list, "plans of rank 0").array())
    plans.push_back(plan_from_json(v.raw(), v.path()));
  return plans;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

struct Result {
  train::TrainReport report;
  std::string error;     // empty: none
  bool refused = false;  // the machine cannot hold it
};

// Whether any rank has something to complain of. Ranks that did not come through the same
// operations find no agreement: all end.
bool any_failed(bool mine, comm::Group& world, c10::Device device) {
  const auto words = parallel::gather_words(mine ? 1 : 0, world, device, "did the plan run");
  return std::ranges::any_of(words, [](std::int64_t word) { return word != 0; });
}

Result run_one(const Plan& plan, int recorded, const CompareOptions& options, comm::Group& world,
               c10::Device device) {
  train::TrainOptions settings;
  settings.recorded_steps = recorded;
  settings.steps = options.warm_up + options.steps + recorded;
  settings.seed = kSeed;
  settings.learning_rate.peak = kRate;
  settings.learning_rate.total_steps = settings.steps;
  settings.device = device;
  settings.stop_signal = &Interrupt::signal;
  settings.data = open_data("synthetic", plan.model, kSeed);
  ops::release_cached(device);
  ops::reset_peak(device);
  Result result;
  if (const auto shortage = measure::find_shortage(plan, {}, world, device)) {
    result.error = measure::mistake_of(*shortage, "").what;
    result.refused = true;
    return result;
  }
  try {
    result.report = train::train(plan, world, settings);
  } catch (const comm::CommError&) {
    throw;  // the world is broken
  } catch (const Error& error) {
    result.error = error.mistake().what;
  } catch (const std::exception& error) {  // out of memory, above all
    result.error = first_line(error.what());
  }
  if (any_failed(!result.error.empty(), world, device) && result.error.empty())
    result.error = "another rank failed";
  return result;
}

// What a plan's rounds gave so far, with one more.
MeasuredPlan with_round(MeasuredPlan measured, const Plan& plan, const train::TrainReport& report,
                        const CompareOptions& options) {
  const auto first = report.steps.begin() + options.warm_up;
  measured.steps.insert(measured.steps.end(), first, first + options.steps);
  std::vector<double> seconds;
  seconds.reserve(measured.steps.size());
  for (const Seconds step : measured.steps) seconds.push_back(step.value());
  const measure::Timing timing = measure::robust(std::move(seconds));
  measured.seconds = Seconds(timing.seconds);
  measured.spread = timing.spread;
  if (!report.terms.empty()) measured.stages = train::run_report(plan, report).stages;
  return measured;
}

// Rank 0's book of results.
class Ledger {
 public:
  Ledger(Comparison& comparison, const CompareOptions& options)
      : comparison_(comparison), options_(options) {
    // A plan has another turn when all others have had theirs: a machine that grows slow for a
    // while does so for all of them.
    for (int round = 1; round <= options.rounds; ++round)
      for (std::size_t i = 0; i < comparison.plans.size(); ++i)
        if (comparison.plans[i].error.empty() && rounds_of(comparison.plans[i]) < round)
          open_.push_back(i);
  }

  std::vector<Plan> open_plans() const {
    std::vector<Plan> plans;
    plans.reserve(open_.size());
    for (const std::size_t i : open_) plans.push_back(comparison_.plans[i].plan);
    return plans;
  }

  // On disk before it runs: a plan that takes the program with it must not do so twice.
  void begin(std::size_t number) {
    row(number).error = "the run ended during this plan";
    write();
  }

  void end(std::size_t number, const Result& result) {
    ComparedPlan& compared = row(number);
    compared.error = result.error;
    if (result.error.empty())
      compared.measured = with_round(compared.measured.value_or(MeasuredPlan{}), compared.plan,
                                     result.report, options_);
    write();
    const std::string outcome =
        compared.measured ? fmt::format("measured {}", format_seconds(compared.measured->seconds))
                          : compared.error;
    note(fmt::format("{} of {}: {}: predicted {}, {}", number + 1, open_.size(), title_of(compared),
                     format_seconds(compared.plan.prediction.iteration), outcome));
  }

  // A signal ended it early: the next comparison runs it.
  void forget(std::size_t number) {
    row(number).error.clear();
    write();
  }

  void write() const {
    if (!options_.out.empty()) write_text(options_.out, to_json(comparison_).dump(1) + "\n");
  }

 private:
  int rounds_of(const ComparedPlan& compared) const {
    if (!compared.measured) return 0;
    return std::max(1, static_cast<int>(compared.measured->steps.size()) / options_.steps);
  }
  ComparedPlan& row(std::size_t number) { return comparison_.plans[open_[number]]; }

  Comparison& comparison_;
  const CompareOptions& options_;
  std::vector<std::size_t> open_;  // indices of plans, one for each round that they have not run
};

}  // namespace

namespace {

std::string stop_text(int signal, std::size_t done, std::size_t runs,
                      const CompareOptions& options) {
  const std::string after = options.out.empty() ? "" : "; the same command goes on with the others";
  return fmt::format("stopped by {} after {} of {} runs{}", signal_name(signal), done, runs, after);
}

}  // namespace

int run_comparison(Comparison& comparison, const std::optional<LoadedProfile>& profile,
                   const Place& place, const CompareOptions& options,
                   const std::function<void()>& finish) {
  Ledger ledger(comparison, options);
  // All was run before: what was measured stands beside what is predicted now, and no rank starts.
  if (!place.launch && ledger.open_plans().empty()) {
    ledger.write();
    finish();
    return kOk;
  }
  return run_world(place, [&](comm::Group& world, c10::Device device) {
    const bool first = world.rank() == 0;
    const std::vector<Fact> facts = measure::facts_of(world, device, place.backend);
    if (first && profile)
      measure::expect_taken_here(profile->profile, facts, profile->reference.file);
    const std::string mine = first ? plans_text(ledger.open_plans()) : "";
    const std::vector<Plan> plans = plans_from_text(measure::broadcast_text(mine, world, device));
    std::set<std::string> failed;
    std::set<std::string> seen;
    int stopped_by = 0;
    std::size_t done = 0;
    bool any_ran = false, any_refused = false;
    for (std::size_t i = 0; i < plans.size() && stopped_by == 0; ++i) {
      const std::string key = layout_key(plans[i]);
      if (failed.contains(key)) continue;
      if (first) ledger.begin(i);
      const Result result =
          run_one(plans[i], seen.insert(key).second ? kRecorded : 0, options, world, device);
      if (!result.error.empty()) failed.insert(key);
      (result.refused ? any_refused : any_ran) = true;
      stopped_by = result.report.stopped_by;
      if (first && stopped_by == 0) ledger.end(i, result);
      if (first && stopped_by != 0) ledger.forget(i);
      if (stopped_by == 0) ++done;
    }
    const bool none_fits = any_refused && !any_ran;
    const int status = stopped_by != 0 ? signal_status(stopped_by) : none_fits ? kInfeasible : kOk;
    if (!first) return status;
    ledger.write();
    finish();
    if (none_fits) note("no plan fits this machine; 'braid train --dry-run' shows what one holds");
    if (stopped_by != 0) note(stop_text(stopped_by, done, plans.size(), options));
    return status;
  });
}

}  // namespace braid::cli
