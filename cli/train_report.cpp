// What `braid train` says at the end: predicted against measured.

#include <fmt/core.h>

#include <algorithm>

#include "cli/train.h"
#include "planner/core/text.h"
#include "planner/explain/summary.h"

namespace braid::cli {
namespace {

// Below this share of the step a term is noise.
constexpr double kNoise = 5e-4;

struct Row {
  std::string name;
  std::optional<Seconds> predicted, measured;
  std::optional<Seconds> predicted_hidden, measured_hidden;
};

std::vector<Row> rows_of(const StageReport& stage) {
  const StepTerms none;
  const StepTerms& measured = *stage.measured;
  const StepTerms& predicted = stage.predicted ? *stage.predicted : none;
  const Seconds noise = kNoise * std::max(measured.step(), predicted.step());
  std::vector<Row> rows;
  const auto matters = [&](Seconds a, Seconds b) { return std::max(a, b) > noise; };
  const auto plain = [&](const PlainTerm& term) {
    const Seconds p = predicted.*term.member, m = measured.*term.member;
    if (matters(p, m)) rows.push_back({term.name, p, m, std::nullopt, std::nullopt});
  };
  plain(kPlainTerms.front());
  for (const CommTerm& term : kCommTerms) {
    const CommTime p = predicted.*term.member, m = measured.*term.member;
    if (matters(p.exposed, m.exposed) || matters(p.hidden, m.hidden))
      rows.push_back({term.name, p.exposed, m.exposed, p.hidden, m.hidden});
  }
  for (std::size_t i = 1; i < kPlainTerms.size(); ++i) plain(kPlainTerms[i]);
  rows.push_back({"step", predicted.step(), measured.step(), std::nullopt, std::nullopt});
  return rows;
}

std::string time_text(const std::optional<Seconds>& time) {
  if (!time) return "";
  return *time > Seconds(0) ? format_seconds(*time) : "-";
}

std::string ratio_text(const Row& row) {
  if (!row.predicted || !(*row.predicted > Seconds(0))) return "";
  return fmt::format("{:.3g}", *row.measured / *row.predicted);
}

bool hides(const Row& row) {
  return std::max(row.predicted_hidden, row.measured_hidden) > Seconds(0);
}

std::string stage_text(const StageReport& stage, const RenderOptions& look) {
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right, Align::right});
  const std::vector<Row> rows = rows_of(stage);
  // Only a device moves bytes beside compute. On CPUs "hidden" is all the time until somebody
  // waits, which says nothing about the links; so it stays in the JSON.
  const bool any_hidden = stage.held.allocated && std::ranges::any_of(rows, hides);
  const bool priced = stage.predicted.has_value();
  table.add({"", priced ? "planned" : "", "measured", priced ? "ratio" : "",
             any_hidden && priced ? "hidden: planned" : "", any_hidden ? "measured" : ""});
  for (const Row& row : rows) {
    const bool hidden = any_hidden && hides(row);
    table.add({row.name, priced ? time_text(row.predicted) : "", time_text(row.measured),
               priced ? ratio_text(row) : "",
               hidden && priced ? time_text(row.predicted_hidden) : "",
               hidden ? time_text(row.measured_hidden) : ""});
  }
  return table.text(look);
}

// The stage that works longest, which sets the pace; the others differ in how long they wait.
std::size_t busiest(const std::vector<StageReport>& stages) {
  const auto busy = [](const StageReport& stage) {
    return stage.measured->step() - stage.measured->bubble - stage.measured->transfer.exposed;
  };
  return static_cast<std::size_t>(std::ranges::max_element(stages, {}, busy) - stages.begin());
}

}  // namespace

std::string terms_text(const RunReport& report, const RenderOptions& look) {
  const std::vector<StageReport>& stages = report.stages;
  if (stages.empty() || !stages.front().measured) return "";
  const std::size_t slowest = busiest(stages);
  std::string title = "Where a step goes, on one device";
  if (stages.size() > 1)
    title += fmt::format(" of stage {}, the busiest of {}", slowest, stages.size());
  std::string text = paragraph(title, look) + stage_text(stages[slowest], look);
  if (stages.size() == 1) return text;
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right});
  table.add({"stage", "compute: planned", "measured", "bubble: planned", "measured"});
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const auto planned = [&](Seconds StepTerms::*term) {
      return stages[i].predicted ? time_text((*stages[i].predicted).*term) : "";
    };
    table.add({std::to_string(i), planned(&StepTerms::compute),
               time_text(stages[i].measured->compute), planned(&StepTerms::bubble),
               time_text(stages[i].measured->bubble)});
  }
  return text + "\n" + table.text(look);
}

std::string report_text(const RunReport& report, const RenderOptions& look,
                        const std::string& remark) {
  std::string time = format_seconds(report.step);
  const Seconds predicted = report.plan.prediction.iteration;
  if (predicted > Seconds(0))
    time += fmt::format(" · planned {}: {:.3g} times that", format_seconds(predicted),
                        report.step / predicted);
  if (report.mfu) time += fmt::format(" · MFU {}", format_percent(*report.mfu));
  std::string text = titled("Time of a step", Tone::plain, time, Tone::plain, look);
  text += '\n';
  if (const std::string terms = terms_text(report, look); !terms.empty())
    text += terms + remark + "\n";
  std::vector<HeldMemory> held;
  held.reserve(report.stages.size());
  for (const StageReport& stage : report.stages) held.push_back(stage.held);
  return text + memory_text(report.plan, held, look);
}

}  // namespace braid::cli
