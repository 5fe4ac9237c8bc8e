// What the stages of a run hold, beside what the plan says they hold.

#include <fmt/core.h>

#include <algorithm>

#include "cli/train.h"
#include "planner/core/text.h"
#include "planner/explain/run_report.h"
#include "planner/explain/summary.h"

namespace braid::cli {
namespace {

struct Term {
  const char* name;
  Bytes HeldMemory::*held;
  Bytes MemoryParts::*planned;
};
constexpr Term kTerms[] = {
    {"weights", &HeldMemory::weights, &MemoryParts::weights},
    {"gradients", &HeldMemory::gradients, &MemoryParts::gradients},
    {"optimizer", &HeldMemory::optimizer, &MemoryParts::optimizer},
    {"activations", &HeldMemory::activations, &MemoryParts::activations},
};

// A stage's terms beside each other. Equal rows of neighbouring stages become one.
struct Row {
  std::vector<Bytes> held, planned;  // by term, then their sum
  std::optional<Bytes> allocated, planned_peak;
  bool operator==(const Row&) const = default;
};

Row row_of(const Plan& plan, const HeldMemory& held, std::size_t stage) {
  Row row;
  const StagePrediction& prediction = plan.prediction.stages[stage];
  const MemoryParts parts = held_parts(prediction);
  Bytes planned_total;
  for (const Term& term : kTerms) {
    row.held.push_back(held.*term.held);
    row.planned.push_back(parts.*term.planned);
    planned_total += row.planned.back();
  }
  row.held.push_back(held.total());
  row.planned.push_back(planned_total);
  row.allocated = held.allocated;
  if (held.allocated) row.planned_peak = prediction.allocated();
  return row;
}

std::string range(int first, int last) {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

std::string optional_bytes(const std::optional<Bytes>& size) {
  return size ? format_bytes(*size) : "";
}

void add_row(Table& table, const Row& row, int first, int last, const RenderOptions& look) {
  std::vector<std::string> held = {range(first, last), "holds"};
  std::vector<std::string> planned = {"", "planned"};
  std::string differs;
  for (std::size_t i = 0; i < row.held.size(); ++i) {
    held.push_back(format_bytes(row.held[i]));
    planned.push_back(format_bytes(row.planned[i]));
    if (row.held[i] == row.planned[i] || i == std::size(kTerms)) continue;
    const double by = row.planned[i] > Bytes(0) ? row.held[i] / row.planned[i] - 1 : 1;
    differs += fmt::format("{}{} {}{}", differs.empty() ? "≠ " : ", ", kTerms[i].name,
                           by > 0 ? "+" : "", format_percent(by));
  }
  held.push_back(optional_bytes(row.allocated));
  planned.push_back(optional_bytes(row.planned_peak));
  held.push_back(differs.empty() ? "" : paint(differs, Tone::bad, look));
  planned.emplace_back();
  table.add(std::move(held));
  table.add(std::move(planned));
}

}  // namespace

std::string memory_text(const Plan& plan, const std::vector<HeldMemory>& stages,
                        const RenderOptions& look) {
  if (!is_priced(plan)) return "The plan predicts no memory.\n";
  std::vector<Row> rows;
  rows.reserve(stages.size());
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    rows.push_back(row_of(plan, stages[stage], stage));
  const bool counted =
      std::ranges::any_of(rows, [](const Row& row) { return row.allocated.has_value(); });
  Table table({Align::left, Align::left, Align::right, Align::right, Align::right, Align::right,
               Align::right, Align::right, Align::left});
  table.add({"stage", "", "weights", "gradients", "optimizer", "activations", "sum",
             counted ? "allocator" : "", ""});
  for (std::size_t first = 0; first < rows.size();) {
    std::size_t end = first + 1;
    while (end < rows.size() && rows[end] == rows[first]) ++end;
    add_row(table, rows[first], static_cast<int>(first), static_cast<int>(end) - 1, look);
    first = end;
  }
  return "Memory of one device\n" + table.text(look);
}

Json memory_json(const Plan& plan, const std::vector<HeldMemory>& stages) {
  Json list = Json::array();
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    list.push_back(memory_json(plan, stage, stages[stage]));
  return list;
}

}  // namespace braid::cli
