// braid explain: a plan again, as it is or under another question.

#include <fmt/core.h>

#include <memory>

#include "cli/common.h"
#include "cli/reprice.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/json.h"
#include "planner/explain/summary.h"
#include "planner/explain/text.h"
#include "planner/explain/utilisation.h"

namespace braid::cli {
namespace {

struct ExplainFlags {
  std::string plan, sequence, global_batch, devices, memory, profile;
  std::string format = "text";
};

WhatIf question_of(const ExplainFlags& flags) {
  return {.sequence = read_count(flags.sequence, "--seq", limits::kTokens),
          .global_batch = read_count(flags.global_batch, "--global-batch", limits::kGlobalBatch),
          .devices = read_count(flags.devices, "--devices", limits::kDevices),
          .memory = read_memory(flags.memory)};
}

// What to show: never a figure that today's prices do not give.
Plan answer(const Plan& plan, const ExplainFlags& flags, const WhatIf& question) {
  if (question.asked()) {
    // Its own bounds say nothing about the changed task.
    Plan variant = changed(plan, question, flags.plan);
    variant.certificate = {};
    variant = priced(variant, profile_of(plan, flags.plan, flags.profile));
    note("the same plan under these flags, priced anew; 'braid plan' may find a better one there");
    return variant;
  }
  if (has_prediction(plan) && profile_missing(plan, flags.plan, flags.profile)) {
    note(
        fmt::format("the figures are the file's own: its profile{} is missing, so they could not "
                    "be checked",
                    plan.profile ? fmt::format(" '{}'", printable(plan.profile->file)) : ""));
    expect_possible(plan);
    return plan;
  }
  Plan fresh = priced(plan, profile_of(plan, flags.plan, flags.profile));
  if (const std::string stale = stale_figure(plan, fresh); has_prediction(plan) && !stale.empty())
    note(fmt::format("the plan's stored prediction is stale: {}", stale));
  return fresh;
}

int run_explain(const ExplainFlags& flags) {
  const Format format = read_format(flags.format);
  const WhatIf question = question_of(flags);
  const Plan shown = answer(load_plan(flags.plan), flags, question);
  const auto infeasible = misfit(shown);
  if (format == Format::json) {
    print(infeasible ? misfit_json(*infeasible) : plan_answer_json(shown));
  } else {
    const RenderOptions look = terminal_options();
    print(infeasible ? render_text(*infeasible, look) : render_text(shown, look));
  }
  return infeasible ? kInfeasible : kOk;
}

}  // namespace

void add_explain(const Verb& app, Run& run) {
  const auto flags = std::make_shared<ExplainFlags>();
  const Verb verb = app.add("explain", "show a plan again, or under another question");
  const Options option(verb);
  option("plan,--plan", flags->plan, "FILE", "a plan that 'braid plan --out' wrote").required();
  option("--seq", flags->sequence, "N", "what if a sample had N tokens?");
  option("--global-batch", flags->global_batch, "N", "what if an iteration had N samples?");
  option("--devices", flags->devices, "N", "what if only the first N devices were there?");
  option("--memory", flags->memory, "SIZE", "what if a device had SIZE, for example 40GiB?");
  option("--profile", flags->profile, "FILE", "price the plan with this profile");
  option("--format", flags->format, "NAME", "text (default) or json");
  verb.examples({"braid explain plan.json --seq 8192 --global-batch 128"});
  verb.when_chosen([flags, &run] { run = [flags] { return run_explain(*flags); }; });
}

}  // namespace braid::cli
