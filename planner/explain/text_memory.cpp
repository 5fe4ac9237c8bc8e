#include <fmt/core.h>

#include <algorithm>

#include "planner/core/text.h"
#include "planner/explain/sections.h"
#include "planner/explain/summary.h"

namespace braid {
namespace {

constexpr std::size_t kOtherColumns = 82;  // cells of the table beside its bar
constexpr std::size_t kLeastBar = 22;
constexpr std::size_t kMostBar = 40;
constexpr std::size_t kBarColumn = 1;
constexpr std::size_t kFirstPart = 3;  // column of the first of kParts
constexpr std::size_t kMostRows = 24;  // more are elided in the middle: all of it fits a screen

struct Part {
  std::string_view name;
  std::string_view title;  // of its column
  Bytes MemoryParts::*member;
  std::string_view glyph;
  Tone tone;
};
constexpr Part kParts[] = {
    {"weights", "weights", &MemoryParts::weights, "█", Tone::blue},
    {"gradients", "grads", &MemoryParts::gradients, "▓", Tone::cyan},
    {"optimizer", "optim", &MemoryParts::optimizer, "▒", Tone::green},
    {"activations", "activ", &MemoryParts::activations, "░", Tone::yellow},
    {"workspace", "work", &MemoryParts::workspace, "▚", Tone::magenta},
    {"slack", "slack", &MemoryParts::slack, "╲", Tone::faint},
    {"overhead", "overhead", &MemoryParts::overhead, "╱", Tone::gray},
};

// One unit for a whole table, so that its figures compare at a glance.
struct Scale {
  std::string_view unit;
  double bytes;
  int digits;
  std::string operator()(Bytes size, int more_digits = 0) const {
    return fmt::format("{:.{}f}", static_cast<double>(size.value()) / bytes, digits + more_digits);
  }
};

Scale scale_for(const std::vector<MemoryRow>& rows) {
  Bytes largest;
  for (const MemoryRow& row : rows) largest = std::max(largest, row.stage.peak);
  constexpr double kMebibyte = 1048576.0;
  const double mebibytes = static_cast<double>(largest.value()) / kMebibyte;
  if (mebibytes < 1024) return {"MiB", kMebibyte, 1};
  return {"GiB", kMebibyte * 1024, mebibytes < 10240 ? 2 : 1};
}

double as_double(Bytes size) { return static_cast<double>(size.value()); }

// Bars and parts stand in two tables where one would be too wide.
bool one_table(const RenderOptions& options) {
  return static_cast<std::size_t>(options.width) >= kOtherColumns + kLeastBar;
}

std::size_t bar_width(const RenderOptions& options) {
  constexpr std::size_t kBesideBars = 32;  // cells of stage, peak and budget
  const auto width = static_cast<std::size_t>(std::max(options.width, 0));
  const std::size_t others = one_table(options) ? kOtherColumns : kBesideBars;
  return std::clamp(width - std::min(width, others), kLeastBar, kMostBar);
}

std::string bar(const StagePrediction& stage, const RenderOptions& options) {
  const MemoryParts parts = memory_parts(stage);
  std::vector<Segment> segments;
  for (const Part& part : kParts)
    segments.push_back({static_cast<double>((parts.*part.member).value()), part.glyph, part.tone});
  if (stage.peak <= stage.budget)
    return stacked_bar(segments, as_double(stage.budget), bar_width(options), options);
  return stacked_bar(segments, as_double(stage.peak), bar_width(options), options,
                     as_double(stage.budget));
}

std::string activations(const StagePrediction& stage, const Scale& scale) {
  std::string sum = scale(memory_parts(stage).activations);
  if (stage.in_flight == 1) return sum;
  // A digit more, so that the product can be followed.
  return fmt::format("{:.3g} × {} = {}", stage.in_flight, scale(stage.memory.activations, 1), sum);
}

std::vector<std::string> cells_of(const MemoryRow& row, const Scale& scale,
                                  const RenderOptions& options) {
  const StagePrediction& stage = row.stage;
  const MemoryParts parts = memory_parts(stage);
  const Tone tone = stage.peak <= stage.budget ? Tone::strong : Tone::bad;
  std::vector<std::string> row_cells = {
      row.first == row.last ? std::to_string(row.first) : fmt::format("{}-{}", row.first, row.last),
      bar(stage, options),
      fmt::format("{} / {}", paint(scale(stage.peak), tone, options), scale(stage.budget))};
  for (const Part& part : kParts)
    row_cells.push_back(part.member == &MemoryParts::activations ? activations(stage, scale)
                                                                 : scale(parts.*part.member));
  return row_cells;
}

// The middle of a long list, told by its worst row.
std::vector<std::string> elided(const std::vector<MemoryRow>& rows, std::size_t begin,
                                std::size_t end, const Scale& scale) {
  Bytes most;
  for (std::size_t i = begin; i < end; ++i) most = std::max(most, rows[i].stage.peak);
  return {"…", fmt::format("stages {}-{}: at most", rows[begin].first, rows[end - 1].last),
          scale(most)};
}

// Columns of `rows`: the stage, then those from `first` to before `end`.
std::string columns_text(const std::vector<std::vector<std::string>>& rows, std::size_t first,
                         std::size_t end, const RenderOptions& options) {
  std::vector<Align> columns(1 + end - first, Align::right);
  columns[0] = Align::left;
  if (first == kBarColumn) columns[1] = Align::left;
  Table table(std::move(columns));
  for (const auto& row : rows) {
    std::vector<std::string> some = {row.front()};
    for (std::size_t i = first; i < std::min(end, row.size()); ++i) some.push_back(row[i]);
    table.add(std::move(some));
  }
  return table.text(options);
}

}  // namespace

std::vector<MemoryRow> memory_rows(const Plan& plan) {
  const auto& stages = plan.prediction.stages;
  const auto same = [](const StagePrediction& a, const StagePrediction& b) {
    const MemoryParts x = memory_parts(a);
    const MemoryParts y = memory_parts(b);
    return a.peak == b.peak && a.budget == b.budget && a.in_flight == b.in_flight &&
           std::ranges::all_of(kParts,
                               [&](const Part& part) { return x.*part.member == y.*part.member; });
  };
  std::vector<MemoryRow> rows;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const int stage = static_cast<int>(i);
    if (!rows.empty() && same(rows.back().stage, stages[i])) {
      rows.back().last = stage;
    } else {
      rows.push_back({stage, stage, stages[i]});
    }
  }
  return rows;
}

std::string memory_section(const std::vector<MemoryRow>& rows, CostKind cost,
                           const RenderOptions& options) {
  const Scale scale = scale_for(rows);
  std::vector<std::string> titles = {"stage", "", "peak / budget"};
  for (const Part& part : kParts) titles.emplace_back(part.title);
  for (std::string& title : titles) title = paint(title, Tone::faint, options);
  std::vector<std::vector<std::string>> table = {titles};

  const std::size_t shown = rows.size() <= kMostRows ? rows.size() : kMostRows / 2;
  for (std::size_t i = 0; i < shown; ++i) table.push_back(cells_of(rows[i], scale, options));
  if (shown < rows.size()) {
    const std::size_t tail = rows.size() - kMostRows / 2;
    table.push_back(elided(rows, shown, tail, scale));
    for (std::size_t i = tail; i < rows.size(); ++i)
      table.push_back(cells_of(rows[i], scale, options));
  }

  std::vector<std::string> legend;
  for (const Part& part : kParts)
    legend.push_back(fmt::format("{} {}", paint(part.glyph, part.tone, options), part.name));
  std::string remark = fmt::format("{}, at the worst moment", scale.unit);
  if (cost == CostKind::galvatron) remark += "; Galvatron's formulas give one sum, under weights";
  const std::string text = one_table(options)
                               ? columns_text(table, kBarColumn, titles.size(), options)
                               : columns_text(table, kBarColumn, kFirstPart, options) + '\n' +
                                     columns_text(table, kFirstPart, titles.size(), options);
  return heading("Memory of one device", remark, options) + text + flow(legend, options);
}

}  // namespace braid
