// braid compare: what the baselines, the search and some plans between them take, against what was
// predicted.

#include "cli/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "cli/interrupt.h"
#include "cli/search_flags.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/explain/json.h"
#include "planner/explain/text.h"
#include "planner/explain/utilisation.h"
#include "runtime/models/model.h"

namespace braid::cli {
namespace {

// Flags as they were typed.
struct CompareFlags {
  WorldFlags world;
  TaskFlags task;
  std::string memory, global_batch, precision, gradients, cost, threads;
  SearchEndFlags end;
  std::vector<std::string> algorithms = {"dp",          "zero3",     "tp",  "pp",
                                         "megatron-3d", "galvatron", "bmw", "exact"};
  std::vector<std::string> plans;
  std::string more = "0", steps = "8", warm_up = "2", rounds = "1";
  std::string out, markdown;
  std::string format = "text";
  bool rerun = false, retry = false;
};

int read_small(const std::string& text, const std::string& flag, std::int64_t least) {
  return static_cast<int>(*read_count(text, flag, {least, 1 << 20}));
}

CompareOptions read_options(const CompareFlags& flags) {
  CompareOptions options;
  SearchOptions& search = options.search;
  const std::string usual_cost = flags.task.profile.empty() ? "roofline" : "measured";
  search.cost = read_enum(flags.cost.empty() ? usual_cost : flags.cost, "--cost", kCosts);
  search.memory_limit = read_memory(flags.memory).value_or(Bytes(0));
  search.global_batch = *read_count(flags.global_batch, "--global-batch", limits::kGlobalBatch);
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  search.threads =
      static_cast<int>(read_count(flags.threads, "--threads", limits::kThreads).value_or(cores));
  search.alternatives = 0;
  read_search_end(flags.end, search);
  for (const std::string& name : flags.algorithms)
    options.algorithms.push_back(
        static_cast<Algorithm>(read_choice(name, "--algorithms", algorithm_names())));
  options.files.assign(flags.plans.begin(), flags.plans.end());
  options.more = read_small(flags.more, "--more", 0);
  options.steps = read_small(flags.steps, "--steps", 1);
  options.rounds = read_small(flags.rounds, "--rounds", 1);
  options.warm_up = read_small(flags.warm_up, "--warmup-steps", 0);
  options.out = flags.out;
  options.markdown = flags.markdown;
  options.rerun = flags.rerun;
  options.retry = flags.retry;
  if (!flags.out.empty()) {
    expect_writable(flags.out, "--out");
    if (!keeps_what_is_written(flags.out))
      throw Error({.what = "this is no regular file, and results are read from it again",
                   .where = fmt::format("--out {}", flags.out),
                   .fix = "name a file on a disk"});
  }
  if (!flags.markdown.empty()) expect_writable(flags.markdown, "--markdown");
  return options;
}

// A signal while it searches ends the verb.
Prepared searched(const Task& task, const Place& place, CompareOptions options) {
  ProgressLine line;
  const Interrupt interrupt;
  options.search.stop = &Interrupt::flag();
  options.search.progress = [&line](const SearchProgress& progress) { line.show(progress); };
  Prepared prepared = prepare_comparison(task, place, options);
  if (Interrupt::requested()) prepared.signal = Interrupt::signal();
  return prepared;
}

int plan_and_run(const CompareFlags& flags, const std::optional<comm::Launch>& launch) {
  const Format format = read_format(flags.format);
  CompareOptions options = read_options(flags);
  // Of several processes the first one alone reads and plans; the others hear from it.
  if (launch && launch->rank > 0) {
    Comparison none;
    const Place place = choose_place(flags.world, launch, launch->size);
    return run_comparison(none, std::nullopt, place, options, [] {});
  }
  const Task task = load_task(flags.task);
  expect_limit_within(task.cluster, options.search.memory_limit, "--memory");
  models::require_supported(task.model);
  choose_precisions(options.search, task.profile, flags.precision, flags.gradients);
  expect_precision(task.cluster, options.search.precision, "--precision");
  if (task.profile && uses_profile(options.search.cost))
    expect_holds(*task.profile, task.model, task.cluster, options.search.precision);
  const int devices = task.cluster.num_devices();
  if (launch && launch->size != devices)
    throw Error(
        {.what = fmt::format("{} processes for a cluster of {} devices", launch->size, devices),
         .where = launch->launcher,
         .fix = fmt::format("start {} processes, or add --devices {}", devices, launch->size)});
  const Place place = choose_place(flags.world, launch, devices);
  Prepared prepared = searched(task, place, options);
  if (prepared.signal != 0) {
    note(fmt::format("stopped by {} before any plan was run", signal_name(prepared.signal)));
    return signal_status(prepared.signal);
  }
  if (prepared.comparison.plans.empty()) {
    SearchResult nothing;
    nothing.infeasible = std::move(prepared.infeasible);
    if (nothing.infeasible && format == Format::json) print(result_json(nothing));
    if (nothing.infeasible && format == Format::text) print(render_text(nothing, look_of(place)));
    return kInfeasible;
  }
  return run_comparison(prepared.comparison, task.profile, place, options, [&] {
    if (format == Format::json) {
      print(to_json(prepared.comparison));
    } else {
      print(comparison_text(prepared.comparison, look_of(place)));
    }
    if (!options.markdown.empty())
      write_text(options.markdown, comparison_markdown(prepared.comparison));
    for (const ComparedPlan& compared : prepared.comparison.plans) {
      expect_possible(compared.plan);
      if (compared.measured)
        expect_possible(compared.plan, compared.measured->seconds, Timing::measured,
                        title_of(compared));
    }
  });
}

}  // namespace

void add_compare(const Verb& app, Run& run) {
  const auto flags = std::make_shared<CompareFlags>();
  const Verb verb = app.add("compare", "run several plans and hold them against their predictions");
  const Options option(verb);
  option("plans,--plan", flags->plans, "FILE", "plans to run besides those of --algorithms");
  option("--model", flags->task.model, "FILE", "Hugging Face config.json or Braid model");
  option("--cluster", flags->task.cluster, "FILE", "nodes, devices and links");
  option("--profile", flags->task.profile, "FILE",
         "measured figures; one that carries model and cluster needs neither flag");
  option("--global-batch", flags->global_batch, "N", "samples of one iteration").required();
  option("--seq", flags->task.sequence, "N", "tokens of a sample (default: the model's)");
  option("--devices", flags->task.devices, "N", "use only the cluster's first N devices");
  option("--memory", flags->memory, "SIZE", "a device's limit, for example 16GiB (default: all)");
  option("--precision", flags->precision, "NAME", "bf16 (default), fp32 or fp8");
  option("--gradients", flags->gradients, "NAME", kGradientsHelp);
  option("--cost", flags->cost, "NAME",
         "measured (default with a profile), roofline (without), galvatron or analytic");
  option("--algorithms", flags->algorithms, "NAME",
         "whose plans to run, with commas between (default: dp, zero3, tp, pp, megatron-3d, "
         "galvatron, bmw, exact)")
      .split_at_commas();
  option("--more", flags->more, "N",
         "and N plans with one strategy for all blocks, of many kinds and speeds (default 0)");
  option("--steps", flags->steps, "N", "steps of each plan that count (default 8)");
  option("--warmup-steps", flags->warm_up, "N", "steps ahead of them (default 2)");
  option(
      "--rounds", flags->rounds, "N",
      "go through all plans N times, --steps each time, so that no plan has a slow moment of the "
      "machine for itself (default 1)");
  option("--out", flags->out, "FILE",
         "write all results there after every plan; plans that it holds already are not run again");
  verb.flag("--rerun", flags->rerun, "run all plans anew, whatever --out holds");
  verb.flag("--retry", flags->retry, "run plans again that failed or were cut off");
  option("--format", flags->format, "NAME", "text (default) or json");
  option("--markdown", flags->markdown, "FILE", "write the table there too");
  add_search_end_flags(option, flags->end);
  option("--threads", flags->threads, "N", "search with N threads (default: all cores)");
  add_world_flags(option, flags->world, "must be the cluster's number of devices");
  verb.examples(
      {"braid compare --model configs/examples/tiny-llama.json "
       "--cluster configs/examples/four-threads.json --global-batch 16 --precision fp32 --more 8 "
       "--out results.json",
       "mpirun -n 8 braid compare --profile profile.json --global-batch 64 --more 16 "
       "--out results.json --markdown table.md"});
  verb.when_chosen([flags, &run] {
    run = [flags] {
      return launched(
          [&](const std::optional<comm::Launch>& launch) { return plan_and_run(*flags, launch); });
    };
  });
}

}  // namespace braid::cli
