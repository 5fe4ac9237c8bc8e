// The ranks of `braid train` at work, on each backend, and the dry run.

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/train.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/text.h"
#include "planner/explain/summary.h"
#include "planner/explain/utilisation.h"
#include "runtime/measure/room.h"
#include "runtime/train/agreement.h"
#include "runtime/train/dry_run.h"

namespace braid::cli {
namespace {

constexpr const char* kReportFile = "report.json";

std::string precision_of(const Plan& plan, train::RunPrecision precision) {
  switch (precision) {
    case train::RunPrecision::plan:
      return name_of(plan.precision);
    case train::RunPrecision::fp64:
      return "fp64";
    case train::RunPrecision::fp32:
      return "fp32";
    case train::RunPrecision::bf16:
      return "bf16";
    case train::RunPrecision::fp8:
      return "fp8";
  }
  return {};
}

std::string headline(const Plan& plan, const Place& place, const train::TrainOptions& options) {
  Table table({Align::left, Align::left});
  table.add({"model", fmt::format("{} · {} parameters · sequence {}", printable(plan.model.name),
                                  format_count(static_cast<double>(parameters(plan.model))),
                                  plan.model.sequence)});
  table.add({"plan", shape_line(plan)});
  const int ranks = plan.cluster.num_devices();
  table.add({"ranks", fmt::format("{} · {} · {} on {}", ranks, comm::name_of(place.backend),
                                  precision_of(plan, options.precision),
                                  options.device.is_cuda() ? "GPUs" : "CPUs")});
  table.add({"data", printable(options.data->describe())});
  return table.text(terminal_options()) + "\n";
}

void write_json(const TrainFlags& flags, const Json& json) {
  if (!flags.out.empty()) write_text(flags.out, json.dump(2) + "\n");
}

void print_report(const RunReport& report, const TrainFlags& flags, const Place& place) {
  print("\n" + report_text(report, look_of(place), sharing_remark(place)));
  if (!flags.trace.empty())
    print(fmt::format("\nThe trace is {}; open it in ui.perfetto.dev or chrome://tracing.\n",
                      place_of(flags.trace)));
}

std::string saved_text(const checkpoint::Saved& saved) {
  if (saved.trouble)
    return fmt::format("warning: step {} could not be saved: {}: {}; fix: {}", saved.step,
                       printable(saved.trouble->where), saved.trouble->what, saved.trouble->fix);
  std::string text = fmt::format("saved step {}: {}, copied in {}, written in {}", saved.step,
                                 format_bytes(Bytes(saved.bytes)), format_seconds(saved.copy),
                                 format_seconds(saved.write));
  if (saved.leftover)
    text +=
        fmt::format("; warning: {}: {}", printable(saved.leftover->where), saved.leftover->what);
  return text;
}

// A run that trained but could not write all it was asked for has failed in that.
int status_of(const train::TrainReport& measured) {
  if (measured.stopped_by != 0) return signal_status(measured.stopped_by);
  return measured.unwritten.empty() ? kOk : kBadInput;
}

// Calls `write`, whose failure is one more thing that could not be written and ends nothing.
void attempt(const std::function<void()>& write, std::vector<Mistake>& unwritten) {
  try {
    write();
  } catch (const Error& error) {
    unwritten.push_back(error.mistake());
  }
}

}  // namespace

int train_as(comm::Group& world, const Plan& plan, const TrainFlags& flags, const Place& place,
             train::TrainOptions options) {
  if (train::numerics_for(plan, options.precision, options.device).fp8)
    expect_precision(options.device, Precision::fp8);
  const auto shortage = measure::find_shortage(
      plan, {.precision = options.precision, .dropout = options.dropout}, world, options.device);
  if (shortage) {
    if (world.rank() == 0)
      tell(measure::mistake_of(
          *shortage, flags.plan.empty() ? "the plan" : "--plan " + printable(flags.plan)));
    return kInfeasible;
  }
  options.stop_signal = &Interrupt::signal;
  options.on_trouble = [](const Mistake& trouble) {
    note(fmt::format("warning: {}: {}; training goes on without it", printable(trouble.where),
                     trouble.what));
  };
  options.on_warning = [](const std::string& text) { note(text); };
  options.on_saved = [](const checkpoint::Saved& saved) { note(saved_text(saved)); };
  options.on_resume = [](const std::filesystem::path& from,
                         const std::vector<std::string>& changed) {
    note(fmt::format("going on from {}", printable(from.string())));
    for (const std::string& line : changed) note("changed since: " + line);
  };
  const Format format = read_format(flags.format);
  options.progress_to = format == Format::json ? stderr : answer_stream();
  options.progress.terminal = !place.launch && is_terminal(options.progress_to);
  options.on_start = [&, before = std::move(options.on_start)] {
    if (before) before();
    if (format == Format::text) print(headline(plan, place, options));
  };
  train::TrainReport measured = train::train(plan, world, options);
  if (world.rank() > 0) return status_of(measured);
  RunReport report = train::run_report(plan, measured);
  if (measured.stopped_by != 0) {
    report.stopped_by = signal_name(measured.stopped_by);
    fmt::print(options.progress_to, "\nStopped after step {} of {} by {}.\n",
               measured.first_step + std::ssize(measured.steps), options.steps, report.stopped_by);
  }
  if (measured.steps.empty()) {
    note(fmt::format("the run has taken its {} steps; more go on from there with a larger --steps",
                     measured.first_step));
    return status_of(measured);
  }
  const Json json = to_json(report);
  if (format == Format::json) {
    print(json);
  } else {
    print_report(report, flags, place);
  }
  if (!options.metrics.empty())
    attempt([&] { write_text(options.metrics / kReportFile, json.dump(2) + "\n"); },
            measured.unwritten);
  attempt([&] { write_json(flags, json); }, measured.unwritten);
  if (options.save.saves())
    note(fmt::format("saves took {} from training", format_seconds(measured.save_stall)));
  for (const Mistake& missing : measured.unwritten)
    note(fmt::format("error: {}\n  where: {}\n  fix:   {}", missing.what, printable(missing.where),
                     missing.fix));
  if (report.step > Seconds(0))
    expect_possible(plan, report.step, Timing::measured, "the time of a step");
  return status_of(measured);
}

int run_ranks(const Plan& plan, const TrainFlags& flags, const Place& place,
              train::TrainOptions options) {
  return run_world(place, [&](comm::Group& world, c10::Device device) {
    train::TrainOptions mine = options;
    mine.device = device;
    if (!mine.data)
      mine.data = train::open_together(world, device, [&] {
        return open_data(flags.data, plan.model, mine.seed, mine.mask_token);
      });
    return train_as(world, plan, flags, place, std::move(mine));
  });
}

int run_dry(const Plan& plan, const TrainFlags& flags, const train::TrainOptions& options) {
  // Ranks of a stage differ at most by what does not divide: few of them are all played, of many
  // the first of each stage.
  constexpr int kFew = 16;
  if (options.precision == train::RunPrecision::fp8)
    expect_precision(plan.cluster, Precision::fp8, "--precision");
  const int devices = plan.cluster.num_devices();
  const Mesh mesh = plan.mesh();
  std::vector<HeldMemory> ranks(static_cast<std::size_t>(devices));
  std::vector<bool> played(static_cast<std::size_t>(plan.shape.stages));
  for (int rank = 0; rank < devices; ++rank) {
    const auto stage = static_cast<std::size_t>(stage_of(rank, mesh));
    if (devices > kFew && played[stage]) continue;
    played[stage] = true;
    ranks[static_cast<std::size_t>(rank)] =
        train::dry_run(plan, rank, {.precision = options.precision, .dropout = options.dropout});
  }
  const std::vector<HeldMemory> stages = train::largest_of_stages(ranks, plan);
  const Json json = {
      {"format", "braid.dry_run"}, {"version", 1}, {"stages", memory_json(plan, stages)}};
  write_json(flags, json);
  if (read_format(flags.format) == Format::json) {
    print(json);
  } else {
    const RenderOptions look = terminal_options();
    print("  " + paragraph(fmt::format("{} · {} devices", shape_line(plan), devices), look, 2) +
          '\n' + memory_text(plan, stages, look));
  }
  return kOk;
}

}  // namespace braid::cli
