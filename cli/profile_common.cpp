#include "cli/profile_common.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/verb.h"
#include "planner/core/file.h"
#include "planner/core/text.h"
#include "runtime/train/progress.h"

namespace braid::cli {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";
constexpr double kTerminalRefresh = 0.1;  // seconds: eyes see no more
constexpr double kLogEvery = 5;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string progress_text(const measure::BenchProgress& progress, double elapsed) {
  constexpr double kCells = 24;
  const int total = std::max(progress.total, progress.done + 1);
  const double share = static_cast<double>(progress.done) / total;
  const auto full = static_cast<std::size_t>(share * kCells);
  std::string text = fmt::format("[{}{}] {:>4}/{}  {}", repeat("#", full),
                                 repeat(".", static_cast<std::size_t>(kCells) - full),
                                 progress.done, total, progress.name);
  if (progress.done > 0)
    text += fmt::format("  eta {}", train::format_duration(Seconds(elapsed / share - elapsed)));
  return text;
}

std::string journal_of(const std::string& out) { return out + ".journal"; }

}  // namespace

void add_profile_flags(const Options& option, ProfileFlags& flags) {
  option("--out", flags.out, "FILE", "the profile to write").required();
  option("--precision", flags.precision, "NAME",
         "bf16, fp32 or fp8; otherwise bf16 on GPUs, fp32 on CPUs");
  option("--gradients", flags.gradients, "NAME", kGradientsHelp);
  option("--limit", flags.limit, "SECONDS",
         "measure no longer than this; running again goes on from there");
  option("--format", flags.format, "NAME", "text (default) or json");
  add_world_flags(option, flags.world, "how many to measure with (default 1, or as launched)");
}

Precision read_precision(const ProfileFlags& flags, const Place& place) {
  if (flags.precision.empty())
    return place.backend == comm::BackendKind::nccl ? Precision::bf16 : Precision::fp32;
  return read_enum(flags.precision, "--precision", kPrecisions);
}

std::function<void(const measure::BenchProgress&)> progress_on(std::FILE* out, bool terminal,
                                                               const std::function<double()>& now) {
  struct State {
    double begin, last;
  };
  const double begin = now();
  // A log has its first line after a while, a terminal at once.
  const auto state = std::make_shared<State>(State{begin, terminal ? begin - 1 : begin});
  return [=](const measure::BenchProgress& progress) {
    const double time = now();
    if (time - state->last < (terminal ? kTerminalRefresh : kLogEvery)) return;
    state->last = time;
    const std::string text = progress_text(progress, time - state->begin);
    // A closed terminal is no reason to stop: failures to write go unnoticed here.
    std::fputs((terminal ? kEraseLine + text : text + "\n").c_str(), out);
    std::fflush(out);
  };
}

measure::Bench open_bench(comm::Group& world, c10::Device device, const ProfileFlags& flags,
                          const Place& place, std::vector<Fact> facts, const std::string& what) {
  measure::BenchOptions options;
  if (const auto limit = read_count(flags.limit, "--limit"))
    options.limit = std::chrono::seconds(*limit);
  options.stop_signal = &Interrupt::signal;
  const bool terminal = !place.launch && is_terminal(stderr);
  measure::Journal journal;
  if (world.rank() == 0) {
    facts.push_back({"measures", what});
    if (keeps_what_is_written(flags.out)) journal = measure::Journal(journal_of(flags.out), facts);
    if (journal.size() > 0)
      note(fmt::format("going on from {}, which has {} measurements",
                       printable(journal_of(flags.out)), journal.size()));
    options.progress = progress_on(stderr, terminal, steady_seconds);
  }
  return {world, device, std::move(journal), std::move(options)};
}

void finish_bench(measure::Bench& bench, const ProfileFlags& flags, const Profile& profile) {
  if (!bench.first()) return;
  write_text(flags.out, to_json(profile).dump(1) + "\n");
  if (bench.skipped() == 0) bench.journal().remove();
}

std::string closing_text(const measure::Bench& bench, const ProfileFlags& flags,
                         const Profile& profile, Seconds took) {
  Table table({Align::left, Align::left});
  if (profile.noise && profile.noise->measurements > 0)
    table.add({"noise", fmt::format("typically {}, at worst {} ({}); {} measurements",
                                    format_percent(profile.noise->typical),
                                    format_percent(profile.noise->worst), profile.noise->worst_name,
                                    profile.noise->measurements)});
  if (bench.skipped() > 0)
    table.add({"left out",
               fmt::format("{} measurements, past --limit {}{}", bench.skipped(), flags.limit,
                           keeps_what_is_written(flags.out) ? "; the same command goes on from " +
                                                                  printable(journal_of(flags.out))
                                                            : std::string())});
  table.add({"took", train::format_duration(took)});
  table.add({"written", place_of(flags.out)});
  return table.text(terminal_options());
}

Json closing_json(const measure::Bench& bench, const ProfileFlags& flags, const Profile& profile,
                  Seconds took) {
  return {{"status", "ok"},
          {"file", flags.out},
          {"seconds", took.value()},
          {"left_out", bench.skipped()},
          {"profile", to_json(profile)}};
}

}  // namespace braid::cli
