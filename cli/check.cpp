// braid check: is a plan legal, does it still belong to this model and cluster, does it fit, and
// are its figures today's?

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cli/common.h"
#include "cli/reprice.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/json.h"
#include "planner/explain/summary.h"

namespace braid::cli {
namespace {

struct CheckFlags {
  std::string plan, model, cluster, profile;
  std::string format = "text";
};

// Both as flat lists of JSON pointers, so that the first difference has a name.
void expect_same(const Json& planned, const Json& given, const std::string& what,
                 const CheckFlags& flags, const std::string& file) {
  const Json a = planned.flatten();
  const Json b = given.flatten();
  const auto value = [](const Json& flat, const std::string& key) {
    return flat.contains(key) ? flat.at(key).dump(-1, ' ', false, Json::error_handler_t::replace)
                              : std::string("nothing");
  };
  const auto compare = [&](const Json& keys) {
    for (const auto& [key, unused] : keys.items()) {
      if (key == "/name" || value(a, key) == value(b, key)) continue;
      throw Error({.what = fmt::format("the plan was made for another {}: {} there, {} in {}", what,
                                       value(a, key), value(b, key), file),
                   .where = fmt::format("{}: {}{}", flags.plan, what, key),
                   .fix = fmt::format("plan again with --{} {}", what, file)});
    }
  };
  compare(a);
  compare(b);
}

void compare_inputs(const Plan& plan, const CheckFlags& flags) {
  if (!flags.model.empty()) {
    // A plan may have been asked for at another length than the model's usual one.
    const Model given = load_model(flags.model, plan.model.sequence);
    expect_same(to_json(plan.model), to_json(given), "model", flags, flags.model);
  }
  if (!flags.cluster.empty()) {
    const Cluster given = read_cluster(flags.cluster);
    const int devices = plan.cluster.num_devices();
    if (devices > given.num_devices())
      throw Error({.what = fmt::format("the plan needs {} devices, the cluster has {}", devices,
                                       given.num_devices()),
                   .where = fmt::format("{}: cluster", flags.plan),
                   .fix = fmt::format("plan again with --cluster {}", flags.cluster)});
    expect_same(to_json(plan.cluster), to_json(shrink(given, devices)), "cluster", flags,
                flags.cluster);
  }
}

std::string check_text(const Plan& plan, const Plan& fresh, const CheckFlags& flags) {
  const RenderOptions look = terminal_options();
  const auto yes = [&](std::string_view text) { return paint(text, Tone::good, look); };
  const auto no = [&](std::string_view text) { return paint(text, Tone::bad, look); };
  Table table({Align::left, Align::left, Align::left});
  table.add({"plan", yes("legal"), shape_line(plan)});
  if (!flags.model.empty()) table.add({"model", yes("same"), printable(flags.model)});
  if (!flags.cluster.empty()) table.add({"cluster", yes("same"), printable(flags.cluster)});
  for (std::size_t i = 0; i < fresh.prediction.stages.size(); ++i) {
    const StagePrediction& stage = fresh.prediction.stages[i];
    table.add({fmt::format("stage {}", i),
               stage.peak <= stage.budget ? yes("fits") : no("does not fit"),
               fmt::format("{} of {}", format_bytes(stage.peak), format_bytes(stage.budget))});
  }
  if (!has_prediction(plan)) {
    table.add({"prediction", yes("none"), format_seconds(fresh.prediction.iteration)});
    return table.text(look);
  }
  const std::vector<StaleFigure> stale = stale_figures(plan, fresh);
  if (stale.empty())
    table.add({"prediction", yes("current"), format_seconds(fresh.prediction.iteration)});
  constexpr std::size_t kMostRows = 24;  // all of them fit a screen
  for (std::size_t i = 0; i < std::min(stale.size(), kMostRows); ++i)
    table.add({i == 0 ? "prediction" : "", i == 0 ? no("stale") : "", in_words(stale[i])});
  if (stale.size() > kMostRows)
    table.add({"", "", fmt::format("and {} more figures", stale.size() - kMostRows)});
  return table.text(look);
}

Json stale_json(const std::vector<StaleFigure>& figures) {
  Json json = Json::array();
  for (const StaleFigure& figure : figures)
    json.push_back({{"figure", figure.name}, {"stored", figure.stored}, {"now", figure.now}});
  return json;
}

Json check_json(const Plan& plan, const Plan& fresh) {
  Json stages = Json::array();
  for (const StagePrediction& stage : fresh.prediction.stages)
    stages.push_back({{"fits", stage.peak <= stage.budget},
                      {"peak_memory_bytes", stage.peak.value()},
                      {"budget_bytes", stage.budget.value()}});
  return {{"status", first_overflow(fresh.prediction) ? "infeasible" : "ok"},
          {"legal", true},
          {"current", has_prediction(plan) && stale_figures(plan, fresh).empty()},
          {"stale", stale_json(stale_figures(plan, fresh))},
          {"stored_iteration_seconds",
           has_prediction(plan) ? Json(plan.prediction.iteration.value()) : Json(nullptr)},
          {"iteration_seconds", fresh.prediction.iteration.value()},
          {"predicted", predicted_json(fresh)},
          {"stages", std::move(stages)}};
}

int run_check(const CheckFlags& flags) {
  const Format format = read_format(flags.format);
  const Plan plan = load_plan(flags.plan);  // reading verifies
  compare_inputs(plan, flags);
  const Plan fresh = priced(plan, profile_of(plan, flags.plan, flags.profile));
  if (format == Format::json) {
    print(check_json(plan, fresh));
  } else {
    print(check_text(plan, fresh, flags));
  }
  return first_overflow(fresh.prediction) ? kInfeasible : kOk;
}

}  // namespace

void add_check(const Verb& app, Run& run) {
  const auto flags = std::make_shared<CheckFlags>();
  const Verb verb = app.add("check", "is a plan legal, current, and does it fit?");
  const Options option(verb);
  option("plan,--plan", flags->plan, "FILE", "a plan that 'braid plan --out' wrote").required();
  option("--model", flags->model, "FILE", "the model it should be for");
  option("--cluster", flags->cluster, "FILE", "the cluster it should be for");
  option("--profile", flags->profile, "FILE", "price the plan with this profile");
  option("--format", flags->format, "NAME", "text (default) or json");
  verb.examples({"braid check plan.json --model configs/models/llama2-7b.json"});
  verb.remark("Exit status: 0 it fits, 3 it does not, 2 it is illegal or for something else.");
  verb.when_chosen([flags, &run] { run = [flags] { return run_check(*flags); }; });
}

}  // namespace braid::cli
