// braid simulate: plays a plan's schedule and shows who works when.

#include <fmt/core.h>

#include <memory>

#include "cli/common.h"
#include "cli/verbs.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/summary.h"
#include "planner/explain/timeline.h"
#include "planner/simulate/price_plan.h"
#include "planner/simulate/trace.h"

namespace braid::cli {
namespace {

struct SimulateFlags {
  std::string plan, trace;
  std::string format = "text";
};

int run_simulate(const SimulateFlags& flags) {
  const Format format = read_format(flags.format);
  if (!flags.trace.empty()) expect_writable(flags.trace, "--trace");
  const Plan plan = read_plan(flags.plan);  // reading verifies
  const Simulation simulation =
      simulate(plan.shape, stage_times(plan.prediction), {.events = true});
  if (!flags.trace.empty()) write_text(flags.trace, trace_json(simulation, plan));
  if (format == Format::json) {
    print(simulation_json(simulation));
    return kOk;
  }
  const RenderOptions look = terminal_options();
  print(fmt::format("  {} · {} an iteration\n\n", shape_line(plan),
                    format_seconds(simulation.iteration)));
  print(render_timeline(simulation, plan.shape, look) + '\n' + render_use(simulation, look));
  if (!flags.trace.empty())
    print(fmt::format("\nThe trace is in {}; open it in ui.perfetto.dev or chrome://tracing.\n",
                      printable(flags.trace)));
  return kOk;
}

}  // namespace

void add_simulate(CLI::App& app, Run& run) {
  const auto flags = std::make_shared<SimulateFlags>();
  CLI::App* verb = app.add_subcommand("simulate", "play a plan's schedule on a clock");
  const Options option(*verb);
  option("plan", flags->plan, "FILE", "a plan that 'braid plan --out' wrote")->required();
  option("--trace", flags->trace, "FILE", "write a timeline for Perfetto or chrome://tracing");
  option("--format", flags->format, "NAME", "text (default) or json");
  verb->footer("\nExample:\n  braid simulate plan.json --trace trace.json");
  verb->callback([flags, &run] { run = [flags] { return run_simulate(*flags); }; });
}

}  // namespace braid::cli
