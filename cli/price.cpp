// braid price: what a plan takes, wherever it comes from. A plan written by hand needs no
// prediction.

#include <fmt/core.h>

#include <memory>

#include "cli/common.h"
#include "cli/reprice.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/explain/json.h"
#include "planner/explain/summary.h"
#include "planner/explain/text.h"

namespace braid::cli {
namespace {

struct PriceFlags {
  std::string plan, profile, out;
  std::string format = "text";
};

int run_price(const PriceFlags& flags) {
  const Format format = read_format(flags.format);
  if (!flags.out.empty()) expect_writable(flags.out, "--out");
  const Plan given = load_plan(flags.plan);
  const Plan plan = priced(given, profile_of(given, flags.plan, flags.profile));
  const auto infeasible = misfit(plan);
  if (format == Format::json) {
    print(infeasible ? misfit_json(*infeasible) : plan_answer_json(plan));
  } else {
    const RenderOptions look = terminal_options();
    print(infeasible ? render_text(*infeasible, look) : render_text(plan, look));
  }
  if (!flags.out.empty()) write_text(flags.out, plan_text(plan));
  if (!flags.out.empty() && format == Format::text)
    print(fmt::format("\nThe priced plan is {}.\n", place_of(flags.out)));
  return infeasible ? kInfeasible : kOk;
}

}  // namespace

void add_price(const Verb& app, Run& run) {
  const auto flags = std::make_shared<PriceFlags>();
  const Verb verb = app.add("price", "price a plan, written by hand or found");
  const Options option(verb);
  option("plan,--plan", flags->plan, "FILE", "the plan; without prediction and certificate too")
      .required();
  option("--profile", flags->profile, "FILE", "price the plan with this profile");
  option("--format", flags->format, "NAME", "text (default) or json");
  option("--out", flags->out, "FILE", "write the plan there, with its prediction");
  verb.examples({"braid price configs/examples/by-hand.json --out priced.json"});
  verb.remark("Exit status: 0 it fits, 3 it does not, 2 it is illegal.");
  verb.when_chosen([flags, &run] { run = [flags] { return run_price(*flags); }; });
}

}  // namespace braid::cli
