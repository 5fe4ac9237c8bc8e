#include "runtime/train/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "planner/core/text.h"

namespace braid::train {

namespace {

constexpr double kForget = 0.9;                 // of a step's weight, with each later one
constexpr Seconds kTerminalRefresh{0.1};        // eyes see no more
constexpr const char* kEraseLine = "\r\x1b[K";  // back to the first column, and clear

// "9.8 GiB of 10.1 predicted": the second unit only where it differs.
std::string memory_of(const StepMetrics& metrics) {
  std::string used = format_bytes(*metrics.allocated);
  if (!metrics.predicted) return used;
  std::string predicted = format_bytes(*metrics.predicted);
  const std::string_view unit = std::string_view(used).substr(used.find(' '));
  if (predicted.ends_with(unit)) predicted.resize(predicted.size() - unit.size());
  return fmt::format("{} of {} predicted", used, predicted);
}

}  // namespace

std::string format_duration(Seconds time) {
  // More than a thousand years is no forecast.
  if (!(time.value() < 3.2e10)) return "forever";
  const auto s = static_cast<std::int64_t>(std::llround(std::max(time.value(), 0.0)));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string format_rate(double rate) {
  // Each bound lies where the smaller unit would round up to a fourth digit.
  if (rate < 999.5) return fmt::format("{:.0f}", rate);
  if (rate < 999.95e3) return fmt::format("{:.1f}k", rate / 1e3);
  if (rate < 999.95e6) return fmt::format("{:.1f}M", rate / 1e6);
  return fmt::format("{:.1f}G", rate / 1e9);
}

std::string progress_line(const StepMetrics& m, std::int64_t total_steps,
                          std::optional<Seconds> left) {
  const std::string total = std::to_string(total_steps);
  std::string line = fmt::format("step {:>{}}/{}  loss {:.4f}  |g| {:.2f}  lr {:.1e}  {} tok/s",
                                 m.step + 1, total.size(), total, m.loss, m.gradient_norm,
                                 m.learning_rate, format_rate(m.tokens_per_second()));
  if (m.mfu) line += fmt::format("  MFU {}", format_percent(*m.mfu));
  if (m.allocated) line += fmt::format("  {}", memory_of(m));
  if (left) line += fmt::format("  eta {}", format_duration(*left));
  return line;
}

void StepTime::add(Seconds step) {
  if (++steps_ == 2) sum_ = weight_ = 0;
  sum_ = kForget * sum_ + step.value();
  weight_ = kForget * weight_ + 1;
}

std::optional<Seconds> StepTime::mean() const {
  if (steps_ == 0) return std::nullopt;
  return Seconds(sum_ / weight_);
}

bool Progress::due(const StepMetrics& metrics) const {
  const std::int64_t done = metrics.step + 1;
  if (!any_line_ || done >= options_.total_steps) return true;
  if (options_.terminal) return since_line_ >= kTerminalRefresh;
  return since_line_ >= options_.every ||
         (options_.every_steps > 0 && done % options_.every_steps == 0);
}

void Progress::step(const StepMetrics& metrics) {
  time_.add(metrics.seconds);
  since_line_ += metrics.seconds;
  if (!due(metrics)) return;
  const std::int64_t left = std::max<std::int64_t>(options_.total_steps - metrics.step - 1, 0);
  const std::string line =
      progress_line(metrics, options_.total_steps, *time_.mean() * static_cast<double>(left));
  // A closed terminal is no reason to stop training: failures to write go unnoticed here.
  if (options_.terminal)
    std::fputs((kEraseLine + line).c_str(), out_);
  else
    std::fputs((line + "\n").c_str(), out_);
  std::fflush(out_);
  since_line_ = Seconds(0);
  any_line_ = true;
  open_line_ = options_.terminal;
}

void Progress::finish() {
  if (!open_line_) return;
  std::fputs("\n", out_);
  std::fflush(out_);
  open_line_ = false;
}

}  // namespace braid::train
