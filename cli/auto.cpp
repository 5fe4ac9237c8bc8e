// braid auto: measures this machine and a model on it, plans, trains and reports.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/profile_common.h"
#include "cli/search_flags.h"
#include "cli/train.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/text.h"
#include "planner/explain/json.h"
#include "planner/explain/summary.h"
#include "planner/explain/text.h"
#include "planner/explain/utilisation.h"
#include "planner/profile/fingerprint.h"
#include "planner/search/search.h"
#include "runtime/measure/machine.h"
#include "runtime/measure/stopped.h"
#include "runtime/models/model.h"
#include "runtime/parallel/collectives.h"
#include "runtime/train/agreement.h"
#include "runtime/train/progress.h"

namespace braid::cli {
namespace {

// Flags as they were typed.
struct AutoFlags {
  TrainFlags train;
  std::string model, sequence, global_batch, memory, precision, gradients = "fp32", cache, threads;
  SearchEndFlags end;
};

// All that is known before the ranks start.
struct Job {
  TrainFlags flags;
  train::TrainOptions training;
  Place place;
  Model model;
  SearchOptions search;
  std::filesystem::path cache;
};

std::filesystem::path usual_cache() {
  const auto folder = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto base = folder("XDG_CACHE_HOME"); !base.empty()) return base / "braid";
  if (const auto home = folder("HOME"); !home.empty()) return home / ".cache" / "braid";
  throw Error(
      {.what = "there is no folder for measurements: neither XDG_CACHE_HOME nor HOME is set",
       .where = "--cache",
       .fix = "add --cache FOLDER"});
}

void make_folder(const std::filesystem::path& folder, const std::string& flag) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!code) return;
  throw Error({.what = fmt::format("cannot make the folder: {}", code.message()),
               .where = fmt::format("{} {}", flag, folder.string()),
               .fix = "name a folder that can be written"});
}

std::shared_ptr<const train::Dataset> open_job_data(const Job& job) {
  return open_data(job.flags.data, job.model, job.training.seed, job.training.mask_token);
}

Job read_job(const AutoFlags& flags, const std::optional<comm::Launch>& launch) {
  Job job;
  job.flags = flags.train;
  job.training = read_training(flags.train);
  job.place = choose_place(flags.train.world, launch, asked_ranks(flags.train.world, launch));
  SearchOptions& search = job.search;
  search.cost = CostKind::measured;
  search.global_batch = *read_count(flags.global_batch, "--global-batch", limits::kGlobalBatch);
  search.memory_limit = read_memory(flags.memory).value_or(Bytes(0));
  search.precision = read_precision(
      {.world = {}, .out = {}, .precision = flags.precision, .limit = {}}, job.place);
  search.gradient_precision = read_gradients(flags.gradients, search.precision);
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  search.threads =
      static_cast<int>(read_count(flags.threads, "--threads", limits::kThreads).value_or(cores));
  read_search_end(flags.end, search);
  job.model =
      load_model(flags.model, read_count(flags.sequence, "--seq", limits::kTokens).value_or(0),
                 job.place.first());
  models::require_supported(job.model);
  if (!starts_together(job.place)) job.training.data = open_job_data(job);
  job.cache = flags.cache.empty() ? usual_cache() : std::filesystem::path(flags.cache);
  if (job.place.first()) make_folder(job.cache, "--cache");
  return job;
}

// What a cached profile depends on, as the name of its file.
std::filesystem::path cache_file(const Job& job, const std::vector<Fact>& facts) {
  std::string text =
      fmt::format("{} {} {} {} {} {}\n", kVersion, kProfileVersion, name_of(job.search.precision),
                  name_of(job.search.gradient_precision), job.search.global_batch,
                  job.search.memory_limit.value());
  for (const Fact& fact : facts) text += fmt::format("{}: {}\n", fact.name, fact.value);
  text += to_json(job.model).dump();
  return job.cache / fmt::format("profile-{}.json", fingerprint(text));
}

// Rank 0's file as text on all ranks; nothing where there is none or it is no profile of ours.
std::string cached_text(const std::filesystem::path& file, const std::vector<Fact>& facts,
                        comm::Group& world, c10::Device device) {
  std::string text;
  if (world.rank() == 0 && std::filesystem::exists(file)) {
    try {
      text = read_text(file);
      const Profile profile = profile_from_json(parse_json(text, file.string()), file.string());
      measure::expect_taken_here(profile, facts, file.string());
    } catch (const Error& error) {
      note(fmt::format("{}: {}; measuring anew", file.string(), error.mistake().what));
      text.clear();
    }
  }
  return measure::broadcast_text(text, world, device);
}

void note_measured(const Profile& profile, const std::filesystem::path& file,
                   std::chrono::duration<double> took) {
  if (is_terminal(stderr)) std::fputs("\r\x1b[K", stderr);  // the progress bar
  note(fmt::format("measured in {}, noise typically {}; kept in {}",
                   train::format_duration(Seconds(took.count())),
                   format_percent(profile.noise ? profile.noise->typical : 0),
                   printable(file.string())));
}

void tell_infeasible(const SearchResult& result, const Job& job) {
  if (read_format(job.flags.format) == Format::json) {
    print(result_json(result));
  } else {
    print(render_text(result, look_of(job.place)));
  }
}

// Whether some plan may fit: its bytes are known before anything is measured. Rank 0 tells why not.
bool may_fit(const Job& job, const measure::Machine& machine, comm::Group& world,
             c10::Device device) {
  bool fits = true;
  if (world.rank() == 0) {
    SearchOptions options = job.search;
    options.cost = CostKind::roofline;
    options.stop = &Interrupt::flag();
    const Cluster cluster = measure::unmeasured_cluster(machine, options.memory_limit);
    if (const auto result = search_unless_any_fits(job.model, cluster, nullptr, options)) {
      fits = false;
      tell_infeasible(*result, job);
    }
  }
  const auto words = parallel::gather_words(fits ? 1 : 0, world, device, "does any plan fit");
  return words.front() != 0;
}

// Nothing where no plan fits, which rank 0 tells before anything is measured.
std::optional<LoadedProfile> measured_profile(const Job& job, comm::Group& world,
                                              c10::Device device) {
  const measure::Machine here = measure::find_machine(world, device, job.place.backend);
  expect_precision(device, job.search.precision);
  measure::expect_limit_within(here, job.search.memory_limit);
  const std::vector<Fact>& facts = here.facts;
  const std::filesystem::path file = cache_file(job, facts);
  const bool first = world.rank() == 0;
  std::string text = cached_text(file, facts, world, device);
  if (!text.empty()) {
    if (first) note(fmt::format("measured before: {}", printable(file.string())));
    return LoadedProfile{profile_from_json(parse_json(text, file.string()), file.string()),
                         {file.string(), fingerprint(text)}};
  }
  if (!may_fit(job, here, world, device)) return std::nullopt;
  if (first) note("measuring this machine and the model on it");
  const auto begin = std::chrono::steady_clock::now();
  const ProfileFlags flags{
      .world = job.flags.world, .out = file.string(), .precision = {}, .limit = {}};
  measure::Bench bench = open_bench(world, device, flags, job.place, facts, "braid auto");
  measure::HardwareOptions machine;
  machine.precision = job.search.precision;
  machine.gradient_precision = job.search.gradient_precision;
  machine.backend = job.place.backend;
  measure::ModelOptions options;
  options.precision = job.search.precision;
  options.gradient_precision = job.search.gradient_precision;
  options.global_batch = job.search.global_batch;
  options.memory = job.search.memory_limit;
  measure::ModelCost cost;
  Profile profile = profile_model(bench, std::nullopt, job.model, machine, options, cost);
  finish_bench(bench, flags, profile);
  if (first) note_measured(profile, file, std::chrono::steady_clock::now() - begin);
  text = measure::broadcast_text(first ? read_text(file) : "", world, device);
  return LoadedProfile{profile_from_json(parse_json(text, file.string()), file.string()),
                       {file.string(), fingerprint(text)}};
}

std::string planned_text(const Plan& plan) {
  const StagePrediction& fullest =
      std::ranges::max(plan.prediction.stages, {}, &StagePrediction::peak);
  return fmt::format("planned: {}: {} a step, {} of the {} that a device may use", shape_line(plan),
                     format_seconds(plan.prediction.iteration), format_bytes(fullest.peak),
                     format_bytes(fullest.budget));
}

// Rank 0 searches. Nothing where no plan fits, which it tells. Throws Stopped on all ranks where a
// signal came to one.
std::optional<Plan> find_plan(const Job& job, const LoadedProfile& loaded, comm::Group& world,
                              c10::Device device) {
  std::string text;
  if (world.rank() == 0) {
    const Profile& profile = loaded.profile;
    SearchOptions options = job.search;
    options.gradient_precision = profile.gradient_precision;
    options.stop = &Interrupt::flag();
    std::optional<ProgressLine> line(std::in_place);
    options.progress = [&line](const SearchProgress& progress) { line->show(progress); };
    expect_holds(loaded, job.model, *profile.cluster, options.precision);
    SearchResult result = search(job.model, *profile.cluster, &profile, options);
    line.reset();
    if (result.plan) {
      result.plan->profile = loaded.reference;
      expect_possible(*result.plan);
      text = plan_text(*result.plan);
      note(planned_text(*result.plan));
    } else if (result.infeasible) {
      tell_infeasible(result, job);
    } else if (result.statistics.ending == Ending::limit) {
      note("no plan was found within --limit");
    }
  }
  text = measure::broadcast_text(text, world, device);
  const auto signals = parallel::gather_words(Interrupt::signal(), world, device, "signals");
  if (const std::int64_t signal = std::ranges::max(signals); signal != 0)
    throw measure::Stopped(static_cast<int>(signal),
                           fmt::format("what was measured is in {}", loaded.reference.file));
  if (text.empty()) return std::nullopt;
  return plan_from_json(parse_json(text, "plan of rank 0"), "plan of rank 0");
}

// A disk that is full ends no training.
void keep_plan(const Plan& plan, const std::filesystem::path& file) {
  try {
    write_text(file, plan_text(plan));
  } catch (const Error& error) {
    note(fmt::format("warning: {}: {}; training goes on without it",
                     printable(error.mistake().where), error.mistake().what));
  }
}

int run_auto(const AutoFlags& flags, const std::optional<comm::Launch>& launch) {
  const Job job = read_job(flags, launch);
  return run_world(job.place, [&](comm::Group& world, c10::Device device) {
    train::TrainOptions mine = job.training;
    if (!mine.data)
      mine.data = train::open_together(world, device, [&] { return open_job_data(job); });
    const std::optional<LoadedProfile> profile = measured_profile(job, world, device);
    if (!profile) return kInfeasible;
    const std::optional<Plan> plan = find_plan(job, *profile, world, device);
    if (!plan) return kInfeasible;
    mine.device = device;
    if (!mine.metrics.empty())
      mine.on_start = [&] { keep_plan(*plan, mine.metrics / "plan.json"); };
    return train_as(world, *plan, job.flags, job.place, mine);
  });
}

}  // namespace

void add_auto(const Verb& app, Run& run) {
  const auto flags = std::make_shared<AutoFlags>();
  const Verb verb = app.add("auto", "measure, plan and train in one go");
  const Options option(verb);
  option("--model", flags->model, "FILE", "Hugging Face config.json or Braid model").required();
  option("--global-batch", flags->global_batch, "N", "samples of one step").required();
  option("--seq", flags->sequence, "N", "tokens of a sample (default: the model's)");
  option("--memory", flags->memory, "SIZE", "a device's limit, for example 16GiB (default: all)");
  option("--precision", flags->precision, "NAME",
         "bf16, fp32 or fp8; otherwise bf16 on GPUs, fp32 on CPUs");
  option("--gradients", flags->gradients, "NAME", kGradientsHelp);
  option("--cache", flags->cache, "FOLDER",
         "where measurements are kept (default $XDG_CACHE_HOME/braid or ~/.cache/braid)");
  add_search_end_flags(option, flags->end);
  option("--threads", flags->threads, "N", "search with N threads (default: all cores)");
  add_training_flags(verb, flags->train);
  add_world_flags(option, flags->train.world, "how many to train with (default 1, or as launched)");
  verb.examples(
      {"braid auto --ranks 4 --model configs/examples/tiny-llama.json --global-batch 16 "
       "--data text:book.txt --metrics run1",
       "mpirun -n 8 braid auto --model config.json --global-batch 64 --memory 12GiB"});
  verb.when_chosen([flags, &run] {
    run = [flags] {
      return launched(
          [&](const std::optional<comm::Launch>& launch) { return run_auto(*flags, launch); });
    };
  });
}

}  // namespace braid::cli
