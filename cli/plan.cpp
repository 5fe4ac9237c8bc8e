// braid plan: from a model and a cluster to the fastest plan that fits.

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/search_flags.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/json.h"
#include "planner/explain/text.h"
#include "planner/explain/tree.h"
#include "planner/explain/utilisation.h"
#include "planner/search/search.h"

namespace braid::cli {
namespace {

// Parts of the plan that are fixed; empty: searched.
struct FixedFlags {
  std::string tp, tp_kind, pp, cp, dp, ep, zero, recompute, chunks, micro_batch, micro_batches;
};

struct PlanFlags {
  TaskFlags task;
  FixedFlags fixed;
  std::string memory, global_batch, precision, gradients, cost;
  std::string algorithm = "exact";
  std::string threads, alternatives, max_tp, max_cp, max_pp;
  SearchEndFlags end;
  std::vector<std::string> schedules, rules_off;
  bool no_recompute = false;
  bool no_primepar = false;
  bool even_cuts = false;
  bool no_bound = false;
  bool tree = false;
  std::string format = "text";
  std::string out;
};

constexpr ScheduleKind kSchedules[] = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                       ScheduleKind::interleaved, ScheduleKind::zero_bubble};

int read_limit(const std::string& text, const std::string& flag) {
  return static_cast<int>(read_count(text, flag, limits::kDegree).value_or(0));
}

constexpr TensorKind kTensorKinds[] = {TensorKind::megatron, TensorKind::ulysses,
                                       TensorKind::spatial_temporal};
constexpr Recompute kRecomputes[] = {Recompute::none, Recompute::selective, Recompute::full};

FixedParts fixed_parts(const FixedFlags& flags) {
  const auto degree = [](const std::string& text, const char* flag) {
    const auto count = read_count(text, flag, limits::kDegree);
    return count ? std::optional(static_cast<int>(*count)) : std::nullopt;
  };
  FixedParts fixed;
  fixed.tp = degree(flags.tp, "--tp");
  fixed.cp = degree(flags.cp, "--cp");
  fixed.dp = degree(flags.dp, "--dp");
  fixed.ep = degree(flags.ep, "--ep");
  fixed.stages = degree(flags.pp, "--pp");
  fixed.chunks = degree(flags.chunks, "--chunks");
  fixed.micro_batches = degree(flags.micro_batches, "--micro-batches");
  fixed.replica_samples = read_count(flags.micro_batch, "--micro-batch", limits::kGlobalBatch);
  if (const auto zero = read_count(flags.zero, "--zero", {0, 3}))
    fixed.zero = static_cast<Zero>(*zero);
  if (!flags.tp_kind.empty()) fixed.tp_kind = read_enum(flags.tp_kind, "--tp-kind", kTensorKinds);
  if (!flags.recompute.empty())
    fixed.recompute = read_enum(flags.recompute, "--recompute", kRecomputes);
  return fixed;
}

SpaceOptions space_options(const PlanFlags& flags) {
  SpaceOptions space;
  space.fixed = fixed_parts(flags.fixed);
  for (const std::string& name : flags.rules_off) space.rules_off.push_back(rule_named(name));
  for (const std::string& name : flags.schedules)
    space.schedules.push_back(read_enum(name, "--schedule", kSchedules));
  space.max_tp = read_limit(flags.max_tp, "--max-tp");
  space.max_cp = read_limit(flags.max_cp, "--max-cp");
  space.max_pp = read_limit(flags.max_pp, "--max-pp");
  space.recompute = !flags.no_recompute;
  space.primepar = !flags.no_primepar;
  space.even_cuts = flags.even_cuts;
  return space;
}

// All that needs no file, so that a mistake in a flag is told before a long file is read.
SearchOptions search_options(const PlanFlags& flags) {
  SearchOptions options;
  options.algorithm =
      static_cast<Algorithm>(read_choice(flags.algorithm, "--algorithm", algorithm_names()));
  const std::string usual_cost = flags.task.profile.empty() ? "roofline" : "measured";
  options.cost = read_enum(flags.cost.empty() ? usual_cost : flags.cost, "--cost", kCosts);
  options.memory_limit = read_memory(flags.memory).value_or(Bytes(0));
  options.global_batch =
      read_count(flags.global_batch, "--global-batch", limits::kGlobalBatch).value_or(1);
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  options.threads =
      static_cast<int>(read_count(flags.threads, "--threads", limits::kThreads).value_or(cores));
  options.prove = !flags.no_bound;
  read_search_end(flags.end, options);
  options.alternatives = static_cast<int>(
      read_count(flags.alternatives, "--alternatives", {0, 100}).value_or(options.alternatives));
  options.space = space_options(flags);
  if (uses_profile(options.cost) && flags.task.profile.empty())
    throw Error({.what = fmt::format("the cost '{}' needs a profile", name_of(options.cost)),
                 .where = "--cost",
                 .fix = "pass --profile FILE, or use --cost roofline"});
  return options;
}

SearchResult run_search(const Task& task, SearchOptions options) {
  ProgressLine line;
  options.progress = [&line](const SearchProgress& progress) { line.show(progress); };
  const Interrupt interrupt;
  options.stop = &Interrupt::flag();
  SearchResult result =
      search(task.model, task.cluster, task.profile ? &task.profile->profile : nullptr, options);
  if (task.profile && uses_profile(options.cost)) {
    if (result.plan) result.plan->profile = task.profile->reference;
    if (result.infeasible) result.infeasible->closest.profile = task.profile->reference;
    for (Alternative& alternative : result.alternatives)
      alternative.plan.profile = task.profile->reference;
  }
  return result;
}

// A part of the cluster on which a plan is no slower, or faster.
struct FewerDevices {
  int devices;
  Seconds iteration;
};

// The smallest part, by halves, that is as fast as all of the cluster. Looked for only where the
// plan is far from what the devices could do, so that most of them may wait.
std::optional<FewerDevices> as_fast_on_fewer(const Task& task, SearchOptions options,
                                             const SearchResult& result) {
  constexpr double kFar = 4;        // times the bound of peak FLOPs, memory and links
  constexpr double kAsFast = 1.01;  // of the whole cluster's time
  if (!result.plan || Interrupt::requested() || options.space.fixed.any() ||
      uses_profile(options.cost) ||
      result.plan->prediction.iteration < kFar * result.plan->certificate.physics_bound)
    return std::nullopt;
  ProgressLine line;
  options.progress = [&line](const SearchProgress& progress) { line.show(progress); };
  const Interrupt interrupt;
  options.stop = &Interrupt::flag();
  options.alternatives = 0;
  options.prove = false;
  // Advice, which is to take no longer than the answer, or some seconds.
  double left = std::max(result.statistics.seconds, 15.0);
  if (options.time_limit) left = std::min(left, *options.time_limit - result.statistics.seconds);
  std::optional<FewerDevices> fewer;
  const Seconds whole = result.plan->prediction.iteration;
  for (int devices = task.cluster.num_devices() / 2; devices >= 1; devices /= 2) {
    Cluster part;
    try {
      part = shrink(task.cluster, devices);
    } catch (const Error&) {  // not whole nodes
      break;
    }
    if (left <= 0) break;
    options.time_limit = left;
    const SearchResult smaller = search(task.model, part, nullptr, options);
    left -= smaller.statistics.seconds;
    if (smaller.statistics.ending == Ending::signal) break;
    if (smaller.plan && smaller.plan->prediction.iteration <= kAsFast * whole)
      fewer = {devices, smaller.plan->prediction.iteration};
  }
  return fewer;
}

std::string fewer_text(const FewerDevices& fewer, Seconds whole) {
  return fmt::format("\nFewer devices do: --devices {} takes {}, {:+.1f}%; the rest stay idle.\n",
                     fewer.devices, format_seconds(fewer.iteration),
                     (fewer.iteration / whole - 1) * 100);
}

int run_plan(const PlanFlags& flags) {
  const Format format = read_format(flags.format);
  SearchOptions options = search_options(flags);
  if (!flags.out.empty()) expect_writable(flags.out, "--out");
  const Task task = load_task(flags.task);
  expect_limit_within(task.cluster, options.memory_limit, "--memory");
  choose_precisions(options, task.profile, flags.precision, flags.gradients);
  expect_precision(task.cluster, options.precision, "--precision");
  if (task.profile && uses_profile(options.cost))
    expect_holds(*task.profile, task.model, task.cluster, options.precision);

  const SearchResult result = run_search(task, options);
  if (result.plan) expect_possible(*result.plan);
  const std::optional<FewerDevices> fewer = as_fast_on_fewer(task, options, result);
  if (format == Format::json) {
    Json answer = result_json(result);
    if (flags.tree) answer["tree"] = tree_json(result.tree);
    answer["fewer_devices"] = nullptr;
    if (fewer)
      answer["fewer_devices"] = {{"devices", fewer->devices},
                                 {"iteration_seconds", fewer->iteration.value()}};
    print(answer);
  } else {
    const RenderOptions look = terminal_options();
    if (flags.tree) print(render_tree(result.tree, look) + '\n');
    print(render_text(result, look));
    if (fewer) print(fewer_text(*fewer, result.plan->prediction.iteration));
  }
  if (result.plan && !flags.out.empty()) {
    write_text(flags.out, plan_text(*result.plan));
    if (format == Format::text) print(fmt::format("\nThe plan is {}.\n", place_of(flags.out)));
  }
  if (result.plan) return kOk;
  // A search whose time ran out has no plan, but nobody interrupted it.
  return result.statistics.ending == Ending::signal ? Interrupt::status() : kInfeasible;
}

void add_fixed_flags(const Options& option, FixedFlags& flags) {
  option("--tp", flags.tp, "N", "fix tensor parallelism at N ways; the rest is searched");
  option("--tp-kind", flags.tp_kind, "NAME", "fix its kind: megatron, ulysses, spatial_temporal");
  option("--pp", flags.pp, "N", "fix the number of pipeline stages");
  option("--cp", flags.cp, "N", "fix context parallelism");
  option("--dp", flags.dp, "N", "fix data parallelism");
  option("--ep", flags.ep, "N", "fix expert parallelism, of layers with experts");
  option("--zero", flags.zero, "N", "fix the ZeRO level, 0 to 3");
  option("--recompute", flags.recompute, "NAME", "fix recomputation: none, selective, full");
  option("--chunks", flags.chunks, "N", "fix the model chunks of a stage (interleaved: from 2)");
  option("--micro-batch", flags.micro_batch, "N", "fix the samples of a micro-batch on a replica");
  option("--micro-batches", flags.micro_batches, "N", "fix the micro-batches of an iteration");
}

void add_flags(const Verb& verb, PlanFlags& flags) {
  const Options option(verb);
  option("--model", flags.task.model, "FILE", "Hugging Face config.json or Braid model");
  option("--cluster", flags.task.cluster, "FILE", "nodes, devices and links");
  option("--profile", flags.task.profile, "FILE",
         "measured figures; one that carries model and cluster needs neither flag");
  option("--global-batch", flags.global_batch, "N", "samples of one iteration").required();
  option("--seq", flags.task.sequence, "N", "tokens of a sample (default: the model's)");
  option("--devices", flags.task.devices, "N", "use only the cluster's first N devices");
  option("--memory", flags.memory, "SIZE", "a device's limit, for example 16GiB (default: all)");
  option("--precision", flags.precision, "NAME", "bf16 (default), fp32 or fp8");
  option("--gradients", flags.gradients, "NAME", kGradientsHelp);
  option("--algorithm", flags.algorithm, "NAME",
         "exact (default), galvatron, bmw, or a baseline: dp, zero3, tp, pp, megatron-3d");
  option("--cost", flags.cost, "NAME",
         "measured (default with a profile), roofline (without), galvatron or analytic");
  option("--schedule", flags.schedules, "NAME",
         "gpipe, 1f1b, interleaved, zero_bubble; several with commas (default: all)")
      .split_at_commas();
  add_fixed_flags(option, flags.fixed);
  option("--max-tp", flags.max_tp, "N", "at most N ways of tensor parallelism");
  option("--max-cp", flags.max_cp, "N", "at most N ways of context parallelism");
  option("--max-pp", flags.max_pp, "N", "at most N pipeline stages");
  verb.flag("--no-recompute", flags.no_recompute, "never trade time for memory");
  verb.flag("--no-primepar", flags.no_primepar,
            "do not spare what is on the front of PrimePar's operators from the rules");
  verb.flag("--even-cuts", flags.even_cuts, "give every stage the same number of layers");
  verb.flag("--no-bound", flags.no_bound,
            "skip the exact search that bounds another algorithm's plan");
  option("--alternatives", flags.alternatives, "N",
         "show the best N plans of other kinds (default: 3); none is quickest");
  option("--no-rule", flags.rules_off, "NAME", "switch a pruning rule off; --tree names them")
      .split_at_commas();
  verb.flag("--tree", flags.tree, "show what is searched and what was pruned, with reasons");
  add_search_end_flags(option, flags.end);
  option("--threads", flags.threads, "N", "search with N threads (default: all cores)");
  option("--format", flags.format, "NAME", "text (default) or json");
  option("--out", flags.out, "FILE", "write the plan there");
}

}  // namespace

void add_plan(const Verb& app, Run& run) {
  const auto flags = std::make_shared<PlanFlags>();
  const Verb verb = app.add("plan", "find the fastest plan that fits");
  add_flags(verb, *flags);
  verb.examples(
      {"braid plan --model configs/models/llama2-7b.json "
       "--cluster configs/clusters/a100-80g-8.json --global-batch 64 --memory 40GiB"});
  verb.remark("Ctrl-C ends the search with the best plan so far and its gap.");
  verb.when_chosen([flags, &run] { run = [flags] { return run_plan(*flags); }; });
}

}  // namespace braid::cli
