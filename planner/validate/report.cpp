#include "planner/validate/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "planner/core/json.h"
#include "planner/core/text.h"

namespace braid {
namespace {

std::string rank_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f}", *value) : "–";
}
std::string percent_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.1f}%", 100 * *value) : "–";
}

double distance(const PricedFigure& figure) {
  return std::abs(std::log(figure.outturn.predicted / figure.outturn.measured));
}

// How a run was split, as far as its source says.
std::string split_text(const MeasuredRun& run) {
  std::string text;
  const auto add = [&text](const char* name, int value) {
    if (value > 0) text += fmt::format("{}{}{}", text.empty() ? "" : " ", name, value);
  };
  add("tp", run.tp);
  add("pp", run.pp);
  add("cp", run.cp);
  add("dp", run.dp);
  add("mbs", run.micro_batch);
  if (!run.technique.empty()) text += " " + run.technique;
  return text.empty() ? "not said" : text;
}

std::string model_text(const MeasuredRun& run) {
  return run.model.empty() ? fmt::format("h{} L{}", run.hidden, run.layers) : run.model;
}

Json optional_json(const std::optional<double>& value, double factor) {
  return value ? Json(*value * factor) : Json(nullptr);
}

}  // namespace

std::string render_scores(const Pricing& pricing, const ReserveScore& reserves,
                          const RenderOptions& options) {
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right, Align::right,
               Align::right});
  table.add({paint("set", Tone::strong, options), "runs", "mean error", "9 of 10 within", "rank",
             "regret", "in interval"});
  int below = 0;
  for (const SetScore& one : score(pricing)) {
    below += one.below_bound;
    const std::string inside =
        one.times > 0 ? fmt::format("{} of {}", one.within, one.times) : std::string("–");
    table.add({printable(one.set), fmt::format("{}", one.rows),
               fmt::format("{:.1f}%", 100 * one.error), fmt::format("{:.1f}%", 100 * one.most),
               rank_text(one.spearman), percent_text(one.regret), inside});
  }
  std::string text = table.text(options);
  if (reserves.ranks > 0)
    text += fmt::format(
        "\n  Reserved memory of {} ranks: {} reserved more than we would keep free ({:.1f}%); we "
        "keep {:.1f}% too much on average.\n",
        reserves.ranks, reserves.under, 100.0 * reserves.under / reserves.ranks,
        100 * reserves.over);
  text += below == 0 ? "\n  No run is faster than its arithmetic at its devices' peak.\n"
                     : fmt::format(
                           "\n  {} runs are faster than their arithmetic at their devices' peak.\n",
                           below);
  if (!pricing.unpriced.empty()) {
    text += fmt::format("\n  Not priced: {} runs.\n", pricing.unpriced.size());
    std::vector<std::string> said;
    for (const UnpricedRun& run : pricing.unpriced) {
      const std::string line =
          fmt::format("{}: {}", printable(run.run->set), printable(run.reason));
      if (std::ranges::find(said, line) != said.end()) continue;
      said.push_back(line);
      text += fmt::format("    {}\n", line);
    }
  }
  return text;
}

std::string render_worst(const Pricing& pricing, int count, const RenderOptions& options) {
  std::vector<const PricedFigure*> order;
  order.reserve(pricing.figures.size());
  for (const PricedFigure& figure : pricing.figures) order.push_back(&figure);
  std::ranges::stable_sort(order, std::greater(),
                           [](const PricedFigure* f) { return distance(*f); });
  Table table({Align::right, Align::left, Align::left, Align::left, Align::right, Align::right,
               Align::right, Align::right});
  table.add({paint("id", Tone::strong, options), "set", "model", "split", "batch", "measured",
             "predicted", "error"});
  for (std::size_t i = 0; i < order.size() && static_cast<int>(i) < count; ++i) {
    const PricedFigure& f = *order[i];
    table.add({fmt::format("{}", f.run->id), printable(f.run->set), printable(model_text(*f.run)),
               printable(split_text(*f.run)), fmt::format("{}", f.run->global_batch),
               fmt::format("{:.4g}", f.outturn.measured),
               fmt::format("{:.4g}", f.outturn.predicted), format_error(f.outturn.error())});
  }
  return table.text(options);
}

std::string render_parameters(std::vector<RunSetup>& setups) {
  std::string text;
  for (const Calibration& calibration : calibrations())
    for (const Parameter& parameter : parameters_of(setups, calibration))
      text += fmt::format("    {{\"{}\", \"{}\", {:.4g}}},  // expected {:.4g}\n",
                          calibration.setups.front(), parameter.name, *parameter.places.front(),
                          parameter.expected);
  return text;
}

Json scores_json(const Pricing& pricing, const ReserveScore& reserves) {
  Json sets = Json::array();
  for (const SetScore& one : score(pricing)) {
    sets.push_back({{"set", one.set},
                    {"rows", one.rows},
                    {"mape", one.rows > 0 ? Json(100 * one.error) : Json(nullptr)},
                    {"spearman", optional_json(one.spearman, 1)},
                    {"regret", optional_json(one.regret, 100)},
                    {"unpriced", one.unpriced},
                    {"within_interval", one.within},
                    {"below_bound", one.below_bound}});
  }
  Json unpriced = Json::array();
  for (const UnpricedRun& run : pricing.unpriced)
    unpriced.push_back({{"id", run.run->id}, {"set", run.run->set}, {"reason", run.reason}});
  Json json = {{"sets", sets}};
  if (reserves.ranks > 0)
    json["reserved"] = {{"ranks", reserves.ranks},
                        {"under", 100.0 * reserves.under / reserves.ranks},
                        {"over", 100 * reserves.over}};
  json["unpriced"] = unpriced;
  return json;
}

}  // namespace braid
