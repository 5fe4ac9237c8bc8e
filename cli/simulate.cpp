// braid simulate: plays a plan's schedule and shows who works when.

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <memory>

#include "cli/common.h"
#include "cli/reprice.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/cost/assumptions.h"
#include "planner/explain/json.h"
#include "planner/explain/reserved.h"
#include "planner/explain/streams.h"
#include "planner/explain/summary.h"
#include "planner/explain/timeline.h"
#include "planner/simulate/plan_events.h"
#include "planner/simulate/price_plan.h"
#include "planner/simulate/trace.h"

namespace braid::cli {
namespace {

struct SimulateFlags {
  std::string plan, profile, trace;
  std::string format = "text";
  bool contention = false, allocator = false;
  std::string cards, slowdown;
  std::vector<std::string> stragglers;

  bool events() const { return contention || !stragglers.empty(); }
};

std::optional<double> read_number(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size() || !std::isfinite(number))
    return std::nullopt;
  return number;
}

// "a:b" as two numbers.
std::optional<std::pair<double, double>> read_pair(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto first = read_number(text.substr(0, colon));
  const auto second = read_number(text.substr(colon + 1));
  if (!first || !second) return std::nullopt;
  return std::pair(*first, *second);
}

std::vector<Straggler> read_straggler(const std::string& text, int devices) {
  const std::size_t percent = text.find("%:");
  const bool share = percent != std::string::npos;
  const auto pair = read_pair(share ? text.substr(0, percent) + text.substr(percent + 1) : text);
  const auto reject = [&](const std::string& what, const std::string& fix) {
    throw Error({.what = what, .where = "--straggler", .fix = fix});
  };
  if (!pair)
    reject(fmt::format("'{}' names no straggler", text),
           "write RANK:FACTOR, such as 3:1.2, or PERCENT%:FACTOR, such as 1%:1.2");
  const auto [who, factor] = *pair;
  if (factor < 1)
    reject(fmt::format("a straggler takes {} times as long", factor),
           "write a factor from 1 on; 1.2 is 20% slower");
  if (share) {
    if (who <= 0 || who > 100)
      reject(fmt::format("{}% of the ranks", who), "write a share above 0% and up to 100%");
    return spread_stragglers(who / 100, factor, devices);
  }
  if (who < 0 || who >= devices || who != std::floor(who))
    reject(fmt::format("there is no rank {}", text.substr(0, text.find(':'))),
           fmt::format("the plan's ranks are 0 to {}", devices - 1));
  return {{static_cast<int>(who), factor}};
}

EventOptions read_options(const SimulateFlags& flags, const Plan& plan) {
  EventOptions options{.contention = flags.contention, .device_types = true};
  const double assumed = Assumptions{}.overlap_slowdown;
  options.overlap = {assumed, assumed};
  if (!flags.contention && !(flags.slowdown.empty() && flags.cards.empty()))
    throw Error({.what = fmt::format("{} acts on streams and links",
                                     flags.slowdown.empty() ? "--network-cards" : "--slowdown"),
                 .where = "braid simulate",
                 .fix = "add --contention"});
  if (!flags.slowdown.empty()) {
    const auto pair = read_pair(flags.slowdown);
    if (!pair || pair->first < 1 || pair->second < 1)
      throw Error({.what = fmt::format("'{}' is no pair of factors from 1 on", flags.slowdown),
                   .where = "--slowdown",
                   .fix = "write COMPUTE:COMMUNICATION, such as 1.1:1.3"});
    options.overlap = {pair->first, pair->second};
  }
  options.network_cards =
      static_cast<int>(read_count(flags.cards, "--network-cards", {1, 1 << 20}).value_or(0));
  for (const std::string& text : flags.stragglers)
    for (const Straggler& straggler : read_straggler(text, plan.mesh().devices))
      options.stragglers.push_back(straggler);
  return options;
}

void print_json(Json json, const SimulateFlags& flags, const Plan& plan) {
  json["predicted"] = predicted_json(plan);
  if (flags.allocator) json["memory"] = reserved_json(reserved_by_stage(plan), plan);
  print(json);
}

void print_allocator(const SimulateFlags& flags, const Plan& plan, const RenderOptions& look) {
  if (flags.allocator) print('\n' + render_reserved(reserved_by_stage(plan), plan, look));
}

void print_trace(const SimulateFlags& flags) {
  if (!flags.trace.empty())
    print(fmt::format("\nThe trace is {}; open it in ui.perfetto.dev or chrome://tracing.\n",
                      place_of(flags.trace)));
}

int run_events(const SimulateFlags& flags, Format format, const Plan& plan) {
  const EventInput input = event_input(plan, read_options(flags, plan));
  const EventSimulation simulation = simulate_events(input, {.events = true});
  // The answer comes before a file that a full disk may refuse.
  const auto write_trace = [&] {
    if (!flags.trace.empty()) write_text(flags.trace, trace_json(simulation, input, plan));
  };
  if (format == Format::json) {
    print_json(event_simulation_json(simulation, input), flags, plan);
    write_trace();
    return kOk;
  }
  const RenderOptions look = terminal_options();
  const Simulation& slowest = simulation.classes[slowest_class(simulation)];
  const Seconds quick = simulate(plan.shape, stage_times(plan.prediction)).iteration;
  print("  " +
        paragraph(fmt::format("{} · {} an iteration ({} from stage times alone)", shape_line(plan),
                              format_seconds(simulation.iteration), format_seconds(quick)),
                  look, 2) +
        '\n');
  print(render_timeline(slowest, plan.shape, look) + '\n' + render_use(slowest, look) + '\n' +
        render_streams(simulation, input, look));
  print_allocator(flags, plan, look);
  write_trace();
  print_trace(flags);
  return kOk;
}

// The plan with today's prices: a file's own may be of another version, or edited.
Plan priced_anew(const SimulateFlags& flags) {
  const Plan plan = load_plan(flags.plan);  // reading verifies
  Plan fresh = priced(plan, profile_of(plan, flags.plan, flags.profile));
  if (const std::string stale = stale_figure(plan, fresh); has_prediction(plan) && !stale.empty())
    note(fmt::format("the plan's stored prediction is stale: {}", stale));
  return fresh;
}

int run_simulate(const SimulateFlags& flags) {
  const Format format = read_format(flags.format);
  if (!flags.trace.empty()) expect_writable(flags.trace, "--trace");
  const Plan plan = priced_anew(flags);
  if (flags.events() || !flags.slowdown.empty() || !flags.cards.empty())
    return run_events(flags, format, plan);
  const Simulation simulation =
      simulate(plan.shape, stage_times(plan.prediction), {.events = true});
  const auto write_trace = [&] {
    if (!flags.trace.empty()) write_text(flags.trace, trace_json(simulation, plan));
  };
  if (format == Format::json) {
    print_json(simulation_json(simulation), flags, plan);
    write_trace();
    return kOk;
  }
  const RenderOptions look = terminal_options();
  print("  " +
        paragraph(fmt::format("{} · {} an iteration", shape_line(plan),
                              format_seconds(simulation.iteration)),
                  look, 2) +
        '\n');
  print(render_timeline(simulation, plan.shape, look) + '\n' + render_use(simulation, look));
  print_allocator(flags, plan, look);
  write_trace();
  print_trace(flags);
  return kOk;
}

}  // namespace

void add_simulate(const Verb& app, Run& run) {
  const auto flags = std::make_shared<SimulateFlags>();
  const Verb verb = app.add("simulate", "play a plan's schedule on a clock");
  const Options option(verb);
  option("plan,--plan", flags->plan, "FILE", "a plan that 'braid plan --out' wrote").required();
  verb.flag("--contention", flags->contention,
            "share links, and play gathers and sums of gradients beside compute");
  option("--straggler", flags->stragglers, "RANK:FACTOR",
         "a rank whose compute takes FACTOR times as long, or PERCENT%:FACTOR for a share of them")
      .one_at_a_time()
      .split_at_commas();
  option("--slowdown", flags->slowdown, "COMPUTE:COMM",
         "factors while both run, with --contention (default 1.1:1.1)");
  option("--network-cards", flags->cards, "N",
         "cards of a node, shared by its devices, with --contention (default: one each)");
  verb.flag("--allocator", flags->allocator,
            "replay every stage's tensors on a caching allocator: what it reserves");
  option("--profile", flags->profile, "FILE", "price the plan with this profile");
  option("--trace", flags->trace, "FILE", "write a timeline for Perfetto or chrome://tracing");
  option("--format", flags->format, "NAME", "text (default) or json");
  verb.examples({"braid simulate plan.json --trace trace.json"});
  verb.when_chosen([flags, &run] { run = [flags] { return run_simulate(*flags); }; });
}

}  // namespace braid::cli
