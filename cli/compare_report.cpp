// What `braid compare` says in the end: a table by measured time, and how well predictions held.

#include <fmt/core.h>

#include <algorithm>

#include "cli/compare.h"
#include "planner/core/text.h"

namespace braid::cli {
namespace {

std::string range_text(const ErrorRange& range) {
  return fmt::format("{} to {}", format_error(range.lowest), format_error(range.highest));
}

std::vector<const ComparedPlan*> by_measured_time(const Comparison& comparison) {
  std::vector<const ComparedPlan*> rows;
  rows.reserve(comparison.plans.size());
  for (const ComparedPlan& compared : comparison.plans) rows.push_back(&compared);
  std::ranges::stable_sort(rows, {}, [](const ComparedPlan* row) {
    return row->measured ? row->measured->seconds : kForever;
  });
  return rows;
}

bool counts_memory(const Comparison& comparison) {
  return std::ranges::any_of(comparison.plans, [](const ComparedPlan& c) {
    return c.measured && c.measured->allocated();
  });
}

using Cells = std::vector<std::string>;

Cells header_cells(bool memory) {
  Cells cells = {"", "found by", "plan", "predicted", "measured", "±", "error"};
  if (memory) cells.insert(cells.end(), {"memory predicted", "measured", "error"});
  return cells;
}

Cells cells_of(const ComparedPlan& compared, std::size_t place, bool memory) {
  const Seconds predicted = compared.plan.prediction.iteration;
  Cells cells = {compared.measured ? std::to_string(place) : "", join(compared.names, ", "),
                 short_name(compared.plan), format_seconds(predicted)};
  if (!compared.measured) {
    cells.push_back(printable(compared.error));
    cells.resize(header_cells(memory).size());
    return cells;
  }
  const MeasuredPlan& run = *compared.measured;
  const Outturn time{predicted.value(), run.seconds.value()};
  cells.insert(cells.end(), {format_seconds(run.seconds), format_percent(run.spread / 2),
                             format_error(time.error())});
  if (!memory) return cells;
  const Bytes planned = predicted_allocation(compared.plan);
  cells.push_back(format_bytes(planned));
  if (const std::optional<Bytes> held = run.allocated())
    cells.insert(cells.end(), {format_bytes(*held), format_error(planned / *held - 1)});
  cells.resize(header_cells(memory).size());
  return cells;
}

Cells missing_cells(const MissingPlan& missing, bool memory) {
  Cells cells = {"", missing.name, missing.reason};
  cells.resize(header_cells(memory).size());
  return cells;
}

std::vector<Cells> table_of(const Comparison& comparison) {
  const bool memory = counts_memory(comparison);
  std::vector<Cells> table = {header_cells(memory)};
  for (const ComparedPlan* compared : by_measured_time(comparison))
    table.push_back(cells_of(*compared, table.size(), memory));
  for (const MissingPlan& missing : comparison.missing)
    table.push_back(missing_cells(missing, memory));
  return table;
}

// Each with what it is about and what is said of it.
std::vector<std::pair<std::string, std::string>> findings(const Comparison& comparison) {
  const ComparisonSummary s = summarise(comparison);
  std::vector<std::pair<std::string, std::string>> lines;
  lines.emplace_back("plans",
                     fmt::format("{} measured{}", s.measured,
                                 s.failed > 0 ? fmt::format(", {} failed", s.failed) : ""));
  if (s.mean_error)
    lines.emplace_back("error", fmt::format("{} in the mean, {}", format_percent(*s.mean_error),
                                            range_text(*s.errors)));
  if (s.spearman) lines.emplace_back("ranking", fmt::format("Spearman {:.3f}", *s.spearman));
  if (s.memory_errors) lines.emplace_back("memory", range_text(*s.memory_errors));
  if (s.regret)
    lines.emplace_back("choice",
                       fmt::format("exact is number {} of {}, {} slower than the fastest",
                                   s.regret->place, s.measured, format_percent(s.regret->excess)));
  if (s.speed_up) {
    const ComparedPlan& best = comparison.plans[*s.best_baseline];
    lines.emplace_back(
        "baseline",
        fmt::format("the best is {} with {}; exact is {:.2f} times as fast", join(best.names, ", "),
                    format_seconds(best.measured->seconds), *s.speed_up));
  }
  return lines;
}

}  // namespace

std::string title_of(const ComparedPlan& compared) {
  const std::string names = join(compared.names, ", ");
  return names.empty() ? short_name(compared.plan)
                       : fmt::format("{}: {}", names, short_name(compared.plan));
}

std::string comparison_text(const Comparison& comparison, const RenderOptions& look) {
  const std::vector<Cells> rows = table_of(comparison);
  std::vector<Align> columns(rows.front().size(), Align::right);
  columns[1] = columns[2] = Align::left;
  Table table(std::move(columns));
  for (const Cells& cells : rows) table.add(cells);
  Table summary({Align::left, Align::left});
  for (const auto& [about, text] : findings(comparison))
    summary.add({paint(about, Tone::strong, look), text});
  return table.text(look) + "\n" + summary.text(look);
}

std::string comparison_markdown(const Comparison& comparison) {
  std::string text;
  for (const Cells& cells : table_of(comparison)) {
    const bool header = text.empty();
    text += fmt::format("| {} |\n", join(cells, " | "));
    if (!header) continue;
    for (std::size_t i = 0; i < cells.size(); ++i) text += i == 1 || i == 2 ? "|---" : "|---:";
    text += "|\n";
  }
  text += '\n';
  for (const auto& [about, finding] : findings(comparison))
    text += fmt::format("- {}: {}\n", about, finding);
  return text;
}

}  // namespace braid::cli
