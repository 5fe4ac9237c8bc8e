#include "cli/search_flags.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdio>

#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/verb.h"
#include "planner/core/error.h"
#include "planner/core/text.h"
#include "planner/search/search.h"

namespace braid::cli {
namespace {

// A number above 0 and at most `most`; empty text: none.
std::optional<double> read_positive(const std::string& text, const std::string& flag, double most,
                                    const std::string& fix) {
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || !(value > 0) || value > most)
    throw Error({.what = fmt::format("'{}' is out of range", text), .where = flag, .fix = fix});
  return value;
}

}  // namespace

void add_search_end_flags(const Options& option, SearchEndFlags& flags) {
  option("--limit", flags.limit, "SECONDS",
         "end the search after SECONDS with the best plan so far (default: no limit)");
  option("--gap", flags.gap, "PERCENT",
         "end it when its plan is proven to be within PERCENT of the best (default: 0)");
}

void read_search_end(const SearchEndFlags& flags, SearchOptions& options) {
  constexpr double kLongest = 1e9;  // seconds
  options.time_limit = read_positive(flags.limit, "--limit", kLongest,
                                     "write seconds above 0, for example 30 or 0.5");
  options.enough_gap =
      read_positive(flags.gap, "--gap", 1e6, "write percent above 0 without a sign, for example 2")
          .value_or(0) /
      100;
}

ProgressLine::ProgressLine() : terminal_(is_terminal(stderr)) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && shown_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressLine::show(const SearchProgress& progress) {
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  if (now - last_ < pause()) return;
  last_ = now;
  shown_ = true;
  fmt::print(stderr, "{}braid: {}{}{}", terminal_ ? "\r\x1b[K" : "", progress_text(progress),
             Interrupt::requested() ? ", stopping" : "", terminal_ ? "" : "\n");
  std::fflush(stderr);
}

std::chrono::milliseconds ProgressLine::pause() const {
  if (!shown_) return std::chrono::milliseconds(1000);
  return std::chrono::milliseconds(terminal_ ? 100 : 2000);
}

std::string progress_text(const SearchProgress& progress) {
  std::string text = fmt::format("{:.0f} s: {}", progress.seconds, progress.phase);
  if (progress.best) text += fmt::format(", best {} an iteration", format_seconds(*progress.best));
  if (progress.gap)
    text += fmt::format(", at most {} above the optimum", format_percent(*progress.gap));
  return text;
}

}  // namespace braid::cli
