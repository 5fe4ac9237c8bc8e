#include "planner/validate/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/sections.h"

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

// Why runs have no figure, each reason of a set once.
std::string reasons_text(const char* title, const std::vector<UnpricedRun>& runs) {
  if (runs.empty()) return {};
  std::string text =
      fmt::format("\n  {}: {} run{}.\n", title, runs.size(), runs.size() == 1 ? "" : "s");
  std::vector<std::string> said;
  for (const UnpricedRun& run : runs) {
    const std::string line = fmt::format("{}: {}", printable(run.run->set), printable(run.reason));
    if (std::ranges::find(said, line) != said.end()) continue;
    said.push_back(line);
    text += fmt::format("    {}\n", line);
  }
  return text;
}

// As the file has it: a number where it is one.
Json id_json(const std::string& id) {
  constexpr std::size_t kMostDigits = 15;
  const bool number = !id.empty() && id.size() <= kMostDigits &&
                      id.find_first_not_of("0123456789") == std::string::npos;
  return number ? Json(std::stoll(id)) : Json(id);
}

Json reasons_json(const std::vector<UnpricedRun>& runs) {
  Json json = Json::array();
  for (const UnpricedRun& run : runs)
    json.push_back({{"id", id_json(run.run->id)}, {"set", run.run->set}, {"reason", run.reason}});
  return json;
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
  return text + reasons_text("Not priced", pricing.unpriced) +
         reasons_text("Refused, for they cannot be", pricing.refused);
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
    table.add({printable(f.run->id), printable(f.run->set), printable(model_text(*f.run)),
               printable(split_text(*f.run)), fmt::format("{}", f.run->global_batch),
               fmt::format("{:.4g}", f.outturn.measured),
               fmt::format("{:.4g}", f.outturn.predicted), format_error(f.outturn.error())});
  }
  return table.text(options);
}

std::string render_parameters(std::vector<RunSetup>& setups, const RenderOptions& options) {
  Table table({Align::left, Align::left, Align::right, Align::right});
  table.add({paint("setup", Tone::strong, options), "figure", "fitted", "expected"});
  for (const Calibration& calibration : calibrations())
    for (const Parameter& parameter : parameters_of(setups, calibration))
      table.add({std::string(calibration.setups.front()), std::string(parameter.name),
                 fmt::format("{:.4g}", *parameter.places.front()),
                 fmt::format("{:.4g}", parameter.expected)});
  return heading("Fitted figures", "in seconds, bytes a second and shares", options) +
         table.text(options);
}

Json parameters_json(std::vector<RunSetup>& setups) {
  Json json = Json::array();
  for (const Calibration& calibration : calibrations())
    for (const Parameter& parameter : parameters_of(setups, calibration))
      json.push_back({{"setup", calibration.setups.front()},
                      {"figure", parameter.name},
                      {"fitted", *parameter.places.front()},
                      {"expected", parameter.expected}});
  return json;
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
                    {"refused", one.refused},
                    {"within_interval", one.within},
                    {"below_bound", one.below_bound}});
  }
  Json json = {{"sets", sets}};
  if (reserves.ranks > 0)
    json["reserved"] = {{"ranks", reserves.ranks},
                        {"under", 100.0 * reserves.under / reserves.ranks},
                        {"over", 100 * reserves.over}};
  json["unpriced"] = reasons_json(pricing.unpriced);
  json["refused"] = reasons_json(pricing.refused);
  return json;
}

}  // namespace braid
