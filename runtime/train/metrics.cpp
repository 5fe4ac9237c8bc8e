#include "runtime/train/metrics.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "planner/core/error.h"
#include "planner/core/json.h"

namespace braid::train {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Makes the folder, and so has to come before the first file in it.
std::filesystem::path metrics_file(const std::filesystem::path& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code)
    throw Error({.what = fmt::format("cannot make the folder: {}", code.message()),
                 .where = folder.string(),
                 .fix = "choose a folder that can be written to"});
  return folder / kMetricsFile;
}

// TensorBoard reads every file whose name holds "tfevents", in the order of their names.
std::filesystem::path event_file(const std::filesystem::path& folder, double wall_time) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  const std::string stem =
      fmt::format("events.out.tfevents.{:010.0f}.{}.{}", wall_time, host.data(), getpid());
  for (int number = 0;; ++number) {
    std::filesystem::path file = folder / fmt::format("{}.{}", stem, number);
    if (!std::filesystem::exists(file)) return file;
  }
}

std::int64_t step_of(std::string_view line, const std::string& where) {
  const Json json = parse_json(line, where);
  JsonObject object{JsonValue(json, where)};
  return object.integer("step", limits::kCount.or_zero());
}

// How many bytes of metrics.jsonl a run that goes on at `first_step` (from 0) keeps. Lines count
// steps from 1, as people do.
std::size_t kept_bytes(std::string_view text, std::int64_t first_step, const std::string& file) {
  std::size_t begin = 0;
  for (int number = 1; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;  // torn by a crash
    const std::string where = fmt::format("{}: line {}", file, number);
    if (step_of(text.substr(begin, end - begin), where) > first_step) break;
    begin = end + 1;
  }
  return begin;
}

[[noreturn]] void refuse_earlier_run(const std::filesystem::path& file) {
  throw Error({.what = "the folder holds the metrics of an earlier run",
               .where = file.string(),
               .fix = "choose another folder, or remove the file"});
}

void continue_lines(RecordFile& lines, bool resumes, std::int64_t first_step) {
  const std::string text = lines.read_all();
  if (!resumes && text.find('\n') != std::string::npos) refuse_earlier_run(lines.path());
  const std::size_t kept = kept_bytes(text, first_step, lines.path().string());
  if (kept < text.size()) lines.cut(static_cast<std::int64_t>(kept));
}

std::vector<Scalar> scalars_of(const StepMetrics& m) {
  std::vector<Scalar> scalars = {{"train/loss", m.loss},
                                 {"train/gradient_norm", m.gradient_norm},
                                 {"train/learning_rate", m.learning_rate},
                                 {"speed/tokens_per_second", m.tokens_per_second()},
                                 {"speed/seconds", m.seconds.value()}};
  const auto gib = [](Bytes size) { return static_cast<double>(size.value()) / (1 << 30); };
  if (m.launch) scalars.push_back({"speed/launch_seconds", m.launch->value()});
  if (m.mfu) scalars.push_back({"speed/mfu", *m.mfu});
  if (m.predicted_seconds)
    scalars.push_back({"speed/predicted_seconds", m.predicted_seconds->value()});
  if (m.allocated) scalars.push_back({"memory/allocated_gib", gib(*m.allocated)});
  if (m.predicted) scalars.push_back({"memory/predicted_gib", gib(*m.predicted)});
  return scalars;
}

Json json_of(const checkpoint::Saved& saved) {
  Json json = {{"step", saved.step}};
  if (saved.trouble) {
    json["error"] = saved.trouble->what;
    return json;
  }
  json["bytes"] = saved.bytes;
  json["copy_seconds"] = saved.copy.value();
  json["write_seconds"] = saved.write.value();
  return json;
}

}  // namespace

std::optional<double> model_flops_utilisation(Flops step_flops, Seconds seconds, int devices,
                                              std::optional<FlopsPerSecond> peak) {
  if (!peak || !(peak->value() > 0) || !(seconds.value() > 0)) return std::nullopt;
  return step_flops / *peak / seconds / devices;
}

std::string json_line(const StepMetrics& m) {
  Json line = {{"step", m.step + 1},
               {"loss", m.loss},
               {"gradient_norm", m.gradient_norm},
               {"learning_rate", m.learning_rate},
               {"tokens", m.tokens},
               {"seconds", m.seconds.value()},
               {"tokens_per_second", m.tokens_per_second()}};
  if (m.launch) line["launch_seconds"] = m.launch->value();
  if (m.mfu) line["mfu"] = *m.mfu;
  if (m.allocated) line["allocated_bytes"] = m.allocated->value();
  if (m.predicted) line["predicted_bytes"] = m.predicted->value();
  if (m.predicted_seconds) line["predicted_seconds"] = m.predicted_seconds->value();
  for (const checkpoint::Saved& saved : m.saved) line["checkpoints"].push_back(json_of(saved));
  return line.dump();
}

MetricsWriter::MetricsWriter(const MetricsOptions& options) : lines_(metrics_file(options.folder)) {
  continue_lines(lines_, options.resumes, options.first_step);
  if (!options.tensorboard) return;
  const double time = now();
  events_.emplace(event_file(options.folder, time), time);
  if (options.resumes) events_->restart(options.first_step + 1, time);
}

void expect_new_run(const std::filesystem::path& folder) {
  std::ifstream lines(folder / kMetricsFile);
  std::string line;
  if (std::getline(lines, line) && !lines.eof()) refuse_earlier_run(folder / kMetricsFile);
}

void expect_writable_folder(const std::filesystem::path& folder) {
  // Nothing is made: a mistake in another flag should leave nothing behind.
  std::filesystem::path there = std::filesystem::absolute(folder).lexically_normal();
  std::error_code code;
  while (!std::filesystem::exists(there, code) && there.has_relative_path())
    there = there.parent_path();
  const auto refuse = [&](const std::string& why) {
    throw Error({.what = fmt::format("the folder cannot be made or written to: {}", why),
                 .where = folder.string(),
                 .fix = "choose a folder that can be written to"});
  };
  if (!std::filesystem::is_directory(there, code))
    refuse(fmt::format("{} is no folder", there.string()));
  if (access(there.c_str(), W_OK | X_OK) != 0)
    refuse(fmt::format("{}: {}", there.string(), std::strerror(errno)));
  const std::filesystem::path file = folder / kMetricsFile;
  if (std::filesystem::exists(file, code) && access(file.c_str(), W_OK) != 0)
    refuse(fmt::format("{}: {}", file.string(), std::strerror(errno)));
}

std::vector<const RecordFile*> MetricsWriter::files() const {
  std::vector<const RecordFile*> all = {&lines_};
  if (events_) all.push_back(&events_->file());
  return all;
}

std::vector<Mistake> MetricsWriter::write(const StepMetrics& metrics) {
  std::vector<std::int64_t> before;
  for (const RecordFile* file : files()) before.push_back(file->missing());
  lines_.append(json_line(metrics) + "\n");
  if (events_) events_->write(metrics.step + 1, now(), scalars_of(metrics));
  std::vector<Mistake> troubles;
  for (std::size_t i = 0; i < before.size(); ++i)
    if (before[i] == 0 && files()[i]->missing() > 0) troubles.push_back(*files()[i]->trouble());
  return troubles;
}

std::vector<Mistake> MetricsWriter::incomplete() const {
  std::vector<Mistake> troubles;
  for (const RecordFile* file : files()) {
    if (file->missing() == 0) continue;
    Mistake trouble = *file->trouble();
    trouble.what = fmt::format("{} steps are missing in it: {}", file->missing(), trouble.what);
    troubles.push_back(std::move(trouble));
  }
  return troubles;
}

}  // namespace braid::train
