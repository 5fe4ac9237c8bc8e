#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "planner/validate/report.h"

namespace braid {
namespace {

constexpr double kPanel = 220, kGap = 46, kTop = 30;
constexpr int kColumns = 4;

// The decades that hold every figure of a set.
struct Range {
  double low = 0, high = 1;
  double place(double value) const { return (std::log10(value) - low) / (high - low); }
};

Range range_of(const std::vector<const PricedFigure*>& figures) {
  double least = HUGE_VAL, most = 0;
  for (const PricedFigure* figure : figures) {
    least = std::min({least, figure->outturn.predicted, figure->outturn.measured});
    most = std::max({most, figure->outturn.predicted, figure->outturn.measured});
  }
  const double margin = 0.05 + 0.05 * std::log10(most / least);
  return {std::log10(least) - margin, std::log10(most) + margin};
}

std::string number(double value) {
  if (value >= 1e9) return fmt::format("{:.3g}G", value / 1e9);
  return fmt::format("{:.3g}", value);
}

std::string panel(const std::string& title, const std::vector<const PricedFigure*>& figures,
                  double left, double top) {
  const Range range = range_of(figures);
  const auto x = [&](double value) { return left + kPanel * range.place(value); };
  const auto y = [&](double value) { return top + kPanel * (1 - range.place(value)); };
  std::string svg = fmt::format(
      "<rect x='{}' y='{}' width='{}' height='{}' fill='#fafafa' stroke='#888'/>\n"
      "<text x='{}' y='{}' class='title'>{}</text>\n",
      left, top, kPanel, kPanel, left, top - 8, title);
  // Equality, and ten percent to either side.
  for (const double factor : {1.0, 1.1, 1 / 1.1}) {
    const double low = std::pow(10, range.low), high = std::pow(10, range.high);
    const double a = std::max(low, low / factor), b = std::min(high, high / factor);
    svg += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' class='{}'/>\n", x(a),
                       y(a * factor), x(b), y(b * factor), factor == 1 ? "even" : "tenth");
  }
  for (const PricedFigure* figure : figures)
    svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2'/>\n", x(figure->outturn.measured),
                       y(figure->outturn.predicted));
  const double least = std::pow(10, range.low), most = std::pow(10, range.high);
  svg +=
      fmt::format("<text x='{}' y='{}'>{}</text><text x='{}' y='{}' class='end'>{}</text>\n", left,
                  top + kPanel + 13, number(least), left + kPanel, top + kPanel + 13, number(most));
  return svg;
}

}  // namespace

std::string scatter_svg(const Pricing& pricing) {
  std::vector<std::string> sets;
  for (const PricedFigure& figure : pricing.figures)
    if (std::ranges::find(sets, figure.run->set) == sets.end()) sets.push_back(figure.run->set);
  const int rows = (static_cast<int>(sets.size()) + kColumns - 1) / kColumns;
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' viewBox='0 0 {0} {1}'>\n"
      "<style>text{{font:11px sans-serif;fill:#333}}.title{{font-weight:bold}}"
      ".end{{text-anchor:end}}circle{{fill:#1f5fa8;fill-opacity:.45}}"
      ".even{{stroke:#333}}.tenth{{stroke:#bbb;stroke-dasharray:3 3}}</style>\n"
      "<rect width='100%' height='100%' fill='white'/>\n"
      "<text x='{2}' y='16'>Across: measured. Up: predicted. Line: equal; dashes: 10% "
      "off.</text>\n",
      kColumns * (kPanel + kGap) + kGap / 2, kTop + rows * (kPanel + kGap) + kGap / 2, kGap / 2);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    std::vector<const PricedFigure*> figures;
    for (const PricedFigure& figure : pricing.figures)
      if (figure.run->set == sets[i]) figures.push_back(&figure);
    const std::size_t column = i % kColumns, row = i / kColumns;
    svg += panel(sets[i], figures, kGap / 2 + static_cast<double>(column) * (kPanel + kGap),
                 kTop + kGap / 2 + static_cast<double>(row) * (kPanel + kGap));
  }
  return svg + "</svg>\n";
}

}  // namespace braid
