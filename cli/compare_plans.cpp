// The plans of `braid compare`: those of the algorithms, of files, some uniform ones, and what an
// earlier run measured.

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "cli/compare.h"
#include "planner/core/error.h"
#include "planner/core/text.h"
#include "planner/cost/make_cost_model.h"
#include "planner/profile/fingerprint.h"
#include "planner/search/uniform_plans.h"
#include "planner/simulate/predicted_terms.h"
#include "planner/simulate/price_plan.h"

namespace braid::cli {
namespace {

std::vector<Fact> task_facts(const Task& task, const Place& place, const SearchOptions& search) {
  const Bytes memory = search.memory_limit;
  return {{"model", fmt::format("{} {}", task.model.name, fingerprint(to_json(task.model).dump()))},
          {"global_batch", std::to_string(search.global_batch)},
          {"precision", name_of(search.precision)},
          {"memory", memory == Bytes() ? "all" : format_bytes(memory)},
          {"ranks", std::to_string(task.cluster.num_devices())},
          {"backend", comm::name_of(place.backend)}};
}

// The comparison of an earlier run that wrote the same file.
std::optional<Comparison> earlier_of(const CompareOptions& options, const std::vector<Fact>& task) {
  if (options.out.empty() || options.rerun || !std::filesystem::exists(options.out))
    return std::nullopt;
  Comparison earlier = read_comparison(options.out);
  const std::vector<std::string> changed = differences(earlier.task, task);
  if (!changed.empty())
    throw Error({.what = fmt::format("it compares plans of another task: {}", join(changed, "; ")),
                 .where = fmt::format("--out {}", options.out.string()),
                 .fix = "name another file, or add --rerun to begin it anew"});
  return earlier;
}

class PlanList {
 public:
  PlanList(const Task& task, const CompareOptions& options)
      : task_(task),
        options_(options),
        cost_(make_cost_model({options.search.cost, options.search.precision,
                               options.search.gradient_precision, options.search.global_batch},
                              task.model, task.cluster, profile())) {}

  const Profile* profile() const { return task_.profile ? &task_.profile->profile : nullptr; }
  bool holds(const Plan& plan) const { return places_.contains(layout_key(plan)); }
  const std::vector<ComparedPlan>& rows() const { return rows_; }
  std::vector<ComparedPlan> take() { return std::move(rows_); }

  // Equal plans share a row.
  ComparedPlan& add(Plan plan, const std::string& name) {
    const auto [place, is_new] = places_.try_emplace(layout_key(plan), rows_.size());
    if (is_new) rows_.push_back({.names = {}, .plan = priced(std::move(plan))});
    ComparedPlan& row = rows_[place->second];
    if (!name.empty() && !row.has_name(name)) row.names.push_back(name);
    return row;
  }

  // What it was read from says whose plan it is, and it must be of this task.
  void add_file(const std::filesystem::path& file) {
    Plan plan = read_plan(file);
    const SearchOptions& search = options_.search;
    const auto expect = [&](bool same, const std::string& what) {
      if (same) return;
      throw Error({.what = fmt::format("the plan is for another {}", what),
                   .where = file.string(),
                   .fix = "leave it out, or compare it with plans of its own task"});
    };
    expect(to_json(plan.model) == to_json(task_.model), "model");
    expect(plan.cluster.num_devices() == task_.cluster.num_devices(), "number of devices");
    expect(plan.global_batch == search.global_batch, "global batch");
    expect(plan.precision == search.precision, "precision");
    add(std::move(plan), file.stem().string());
  }

 private:
  // As the task at hand prices it, wherever it comes from.
  Plan priced(Plan plan) const {
    const SearchOptions& search = options_.search;
    plan.cluster = task_.cluster;
    plan.cost = search.cost;
    plan.memory_limit = search.memory_limit;
    plan.gradient_precision = search.gradient_precision;
    plan.profile.reset();
    if (task_.profile && uses_profile(search.cost)) plan.profile = task_.profile->reference;
    const Seconds before = plan.prediction.iteration;
    plan.prediction = price_plan(plan, *cost_);
    // What it was proven to be near, it was under the prices of then.
    if (plan.prediction.iteration != before) plan.certificate = {};
    return plan;
  }

  const Task& task_;
  const CompareOptions& options_;
  std::unique_ptr<CostModel> cost_;
  std::vector<ComparedPlan> rows_;
  std::map<std::string, std::size_t> places_;  // by layout
};

// As the plan's prices are now.
void predict_terms(ComparedPlan& row) {
  const std::vector<StepTerms> terms = predicted_terms(row.plan);
  for (std::size_t stage = 0; stage < terms.size(); ++stage)
    row.measured->stages[stage].predicted = terms[stage];
}

// `infeasible` speaks of all plans: one of another kind may fit.
std::string why_missing(const Infeasible& infeasible, const SearchOptions& options) {
  if (infeasible.rule)
    return fmt::format("no such plan: {} ({})", infeasible.rule->what, infeasible.rule->where);
  if (infeasible.constraint != "memory") return fmt::format("no such plan: {}", infeasible.reason);
  const std::string room =
      options.memory_limit == Bytes() ? "the devices' memory" : format_bytes(options.memory_limit);
  return fmt::format("no plan of this kind can be run, or none fits into {}", room);
}

void add_uniform(PlanList& list, int count, const Task& task, const SearchOptions& options) {
  if (count <= 0) return;
  std::vector<Plan> plans = uniform_plans(task.model, task.cluster, list.profile(), options);
  std::erase_if(plans, [&](const Plan& plan) { return list.holds(plan); });
  for (Plan& plan : spread(plans, count)) list.add(std::move(plan), "");
}

}  // namespace

Prepared prepare_comparison(const Task& task, const Place& place, const CompareOptions& options) {
  Prepared prepared;
  Comparison& comparison = prepared.comparison;
  comparison.task = task_facts(task, place, options.search);
  std::optional<Comparison> earlier = earlier_of(options, comparison.task);
  PlanList list(task, options);
  const std::atomic<bool>* stop = options.search.stop;
  for (const Algorithm algorithm : options.algorithms) {
    if (stop != nullptr && *stop) return prepared;
    SearchOptions search_options = options.search;
    search_options.algorithm = algorithm;
    SearchResult result = search(task.model, task.cluster, list.profile(), search_options);
    if (result.plan) {
      list.add(std::move(*result.plan), name_of(algorithm));
    } else if (result.infeasible) {
      comparison.missing.push_back(
          {name_of(algorithm), why_missing(*result.infeasible, options.search)});
      prepared.infeasible = std::move(result.infeasible);
    } else if (result.statistics.ending == Ending::limit) {
      comparison.missing.push_back({name_of(algorithm), "no plan was found within --limit"});
    }
  }
  for (const std::filesystem::path& file : options.files) list.add_file(file);

  int unnamed = 0;
  if (earlier) {
    for (ComparedPlan& old : earlier->plans) {
      ComparedPlan& row = list.add(std::move(old.plan), "");
      row.measured = std::move(old.measured);
      if (row.measured) predict_terms(row);
      if (!options.retry) row.error = std::move(old.error);
      if (row.names.empty()) ++unnamed;
    }
  }
  add_uniform(list, options.more - unnamed, task, options.search);
  comparison.plans = list.take();
  return prepared;
}

}  // namespace braid::cli
