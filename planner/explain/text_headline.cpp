#include <fmt/core.h>

#include <algorithm>

#include "planner/core/text.h"
#include "planner/explain/sections.h"
#include "planner/explain/summary.h"
#include "planner/explain/utilisation.h"

namespace braid {
namespace {

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string model_line(const Model& model) {
  std::string line = printable(model.name);
  if (knows_shapes(model))
    line += fmt::format(" · {} parameters", format_count(static_cast<double>(parameters(model))));
  return line +
         fmt::format(" · {} · sequence {}", counted(model.num_layers(), "layer"), model.sequence);
}

std::string devices_line(const Cluster& cluster) {
  std::vector<std::string> parts;
  for (const NodeGroup& group : cluster.groups) {
    const auto& type = cluster.device_types[static_cast<std::size_t>(group.device_type)];
    parts.push_back(fmt::format("{} × {} in {}, {} each", group.count * group.devices,
                                printable(type.name), counted(group.count, "node"),
                                format_bytes(type.memory)));
  }
  return join(parts, " + ");
}

std::string batch_line(const Plan& plan) {
  std::string line =
      fmt::format("global batch {} · {}", plan.global_batch, name_of(plan.precision));
  if (plan.gradient_precision != plan.precision)
    line += fmt::format(", gradients {}", name_of(plan.gradient_precision));
  if (plan.memory_limit > Bytes(0))
    line += fmt::format(" · at most {} a device", format_bytes(plan.memory_limit));
  line += fmt::format(" · cost {}", name_of(plan.cost));
  if (plan.profile) line += fmt::format(" from {}", printable(plan.profile->file));
  return line;
}

std::string speed_line(const Plan& plan, const RenderOptions& options) {
  const Utilisation figures = utilisation(plan, plan.prediction.iteration);
  return fmt::format("{}   {:.4g} samples/s   {} tokens/s",
                     paint(format_seconds(figures.iteration), Tone::good, options),
                     figures.samples_per_second, format_count(figures.tokens_per_second));
}

std::string format_flops(Flops work) {
  const double value = work.value();
  if (value >= 1e15) return fmt::format("{:.4g} PFLOP", value / 1e15);
  if (value >= 1e12) return fmt::format("{:.4g} TFLOP", value / 1e12);
  return fmt::format("{:.4g} GFLOP", value / 1e9);
}

std::string utilisation_line(const Plan& plan, const RenderOptions& options) {
  const auto mfu = utilisation(plan, plan.prediction.iteration).mfu;
  if (!mfu) return "not known: the profile carries no layer shapes";
  const Cluster& cluster = plan.cluster;
  const auto peak_of = [&](const NodeGroup& group) {
    return cluster.device_types[static_cast<std::size_t>(group.device_type)].peak(plan.precision);
  };
  std::vector<std::string> devices;
  devices.reserve(cluster.groups.size());
  for (const NodeGroup& group : cluster.groups)
    devices.push_back(fmt::format("{} × {:g} TFLOP/s", group.count * group.devices,
                                  peak_of(group).value() / 1e12));
  const bool mixed = devices.size() > 1;
  const std::string formula =
      fmt::format("= {} a sample × {} / ({} × {}{}{})", format_flops(training_flops(plan.model)),
                  plan.global_batch, format_seconds(plan.prediction.iteration), mixed ? "(" : "",
                  join(devices, " + "), mixed ? ")" : "");
  return fmt::format("{}   {}", paint(format_percent(*mfu), Tone::strong, options),
                     paint(formula, Tone::faint, options));
}

// "0.0002%", "2.2%", "220%", "14 times"
std::string format_excess(double fraction) {
  if (fraction >= 9) return fmt::format("{:.0f} times", fraction + 1);
  const double percent = fraction * 100;
  return percent >= 10 ? fmt::format("{:.0f}%", percent) : fmt::format("{:.2g}%", percent);
}

std::string optimality_line(const Certificate& certificate, double gap) {
  // A gap below a ten-thousandth of a percent is rounding of the same sums in another order.
  if (gap < 1e-6) return "proven: no plan of the searched space is faster";
  return fmt::format("at most {} slower than the best plan of the searched space (bound {})",
                     format_excess(gap), format_seconds(certificate.lower_bound));
}

// Splits and configurations that rules left out: the certificate does not speak of them.
std::string left_out_line(const DecisionTree& tree) {
  std::vector<std::string> parts;
  for (const auto& [rule, count] : tree.left_out())
    parts.push_back(fmt::format("{} by {}", count, info(rule).name));
  return parts.empty() ? "" : fmt::format("not in that space: {} (--tree)", join(parts, ", "));
}

std::string short_time(double seconds) {
  return seconds < 1 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

// What ended the search before its time; empty: nothing.
std::string ending_text(Ending ending) {
  switch (ending) {
    case Ending::complete:
      return "";
    case Ending::signal:
      return " · interrupted: the best so far";
    case Ending::limit:
      return " · ended by --limit: the best so far";
    case Ending::gap:
      return " · ended within --gap";
  }
  return "";
}

// "exact · 3 of 205 configurations may hold a faster plan · 44 ms (28 ms CPU)"
std::string search_line(const Certificate& certificate, const SearchStatistics& statistics) {
  const std::string configurations = counted(statistics.configurations, "configuration");
  std::string work =
      statistics.open == 0
          ? fmt::format("none of {} holds a faster plan", configurations)
          : fmt::format("{} of {} may hold a faster plan", statistics.open, configurations);
  // The others prove nothing by themselves, and may visit a configuration many times.
  if (certificate.algorithm != name_of(Algorithm::exact))
    work = fmt::format("{} in {}", counted(statistics.solved, "plan"), configurations);
  return fmt::format("{} · {} · {} ({} CPU){}", certificate.algorithm, work,
                     short_time(statistics.seconds), short_time(statistics.cpu_seconds),
                     ending_text(statistics.ending));
}

// "tp4 dp8 · 4 stages · 1f1b · 64 × 8 samples: 55.5 s, +1.7%"
std::string uniform_line(const Plan& uniform, const Plan& best) {
  const Seconds time = uniform.prediction.iteration;
  const double slower = time / best.prediction.iteration - 1;
  return fmt::format("{}: {}, {}", shape_line(uniform), format_seconds(time),
                     slower < 1e-6 ? "no slower" : fmt::format("+{:.1f}%", slower * 100));
}

}  // namespace

std::string heading(const std::string& text, const std::string& remark,
                    const RenderOptions& options) {
  return titled(text, Tone::strong, remark, Tone::faint, options);
}

void add_task(Table& table, const Plan& plan, const RenderOptions& options) {
  const auto name = [&](std::string_view text) { return paint(text, Tone::faint, options); };
  table.add({name("model"), model_line(plan.model)});
  table.add({name("cluster"), printable(plan.cluster.name)});
  table.add({name("devices"), devices_line(plan.cluster)});
  table.add({name("training"), batch_line(plan)});
}

std::string headline(const Plan& plan, const SearchResult* search, const RenderOptions& options) {
  const auto name = [&](std::string_view text) { return paint(text, Tone::faint, options); };
  Table table({Align::left, Align::left});
  add_task(table, plan, options);
  table.add({});
  table.add({name("iteration"), speed_line(plan, options)});
  table.add({name("MFU"), utilisation_line(plan, options)});
  const Seconds iteration = plan.prediction.iteration;
  if (const auto gap = excess(iteration, plan.certificate.lower_bound))
    table.add({name("optimality"), optimality_line(plan.certificate, *gap)});
  if (const std::string left_out = search != nullptr ? left_out_line(search->tree) : "";
      !left_out.empty() && plan.certificate.algorithm == name_of(Algorithm::exact))
    table.add({"", left_out});
  if (const auto gap = excess(iteration, plan.certificate.physics_bound))
    table.add({name("physics"),
               fmt::format("{} slower than peak FLOPs, memory and links allow ({})",
                           format_excess(*gap), format_seconds(plan.certificate.physics_bound))});
  if (search != nullptr && search->tree.fixed.any())
    table.add({name("fixed"), search->tree.fixed.to_string()});
  if (search != nullptr && search->uniform)
    table.add({name("uniform"), uniform_line(*search->uniform, plan)});
  if (search != nullptr)
    table.add({name("search"), search_line(plan.certificate, search->statistics)});
  return table.text(options);
}

}  // namespace braid
