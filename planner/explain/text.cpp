#include "planner/explain/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "planner/core/text.h"
#include "planner/explain/sections.h"
#include "planner/explain/summary.h"

namespace braid {
namespace {

std::string plan_sections(const Plan& plan, const RenderOptions& options) {
  return stage_section(plan, options) + '\n' +
         memory_section(memory_rows(plan), plan.cost, options) + '\n' + time_section(plan, options);
}

Bytes largest_peak(const Plan& plan) {
  Bytes peak;
  for (const StagePrediction& stage : plan.prediction.stages) peak = std::max(peak, stage.peak);
  return peak;
}

// Rounded up to something a person would type.
std::string typed(Bytes size) {
  const double gibibytes = static_cast<double>(size.value()) / 1073741824.0;
  if (gibibytes < 1) return fmt::format("{:g}MiB", std::ceil(gibibytes * 1024));
  const double step = gibibytes < 2 ? 0.01 : 0.1;
  return fmt::format("{:g}GiB", std::ceil(gibibytes / step) * step);
}

// Whether the devices have more than the plan may use of them.
bool limited(const Infeasible& infeasible) {
  const Plan& plan = infeasible.closest;
  const bool one_type = plan.cluster.device_types.size() == 1;
  return plan.memory_limit > Bytes() && (one_type || infeasible.available >= plan.memory_limit);
}

// A larger limit where the devices have so much, else larger devices.
std::string more_memory(const Infeasible& infeasible, Bytes enough) {
  const bool within = enough <= largest_memory(infeasible.closest.cluster);
  if (limited(infeasible) && within)
    return fmt::format("{} on each device (--memory {})", format_bytes(enough), typed(enough));
  return fmt::format("devices of at least {}", typed(enough));
}

std::string remedies(const Infeasible& infeasible, const RenderOptions& options) {
  Table table({Align::left, Align::left});
  if (infeasible.enough_memory)
    table.add({"more memory", more_memory(infeasible, *infeasible.enough_memory)});
  const bool batch_binds = infeasible.constraint == "batch";
  if (infeasible.enough_batch)
    table.add({batch_binds ? "a larger batch" : "a smaller batch",
               fmt::format("--global-batch {}", *infeasible.enough_batch)});
  if (infeasible.enough_devices)
    table.add({batch_binds ? "fewer devices" : "more devices",
               batch_binds ? fmt::format("--devices {}", *infeasible.enough_devices)
                           : fmt::format("{} devices in such nodes", *infeasible.enough_devices)});
  const std::string lines = table.text(options);
  if (lines.empty()) return "";
  return '\n' + heading("What would fit", "any one of these", options) + lines;
}

std::string verdict(const Infeasible& infeasible) {
  if (infeasible.rule) return infeasible.rule->what;
  if (!infeasible.reason.empty()) return infeasible.reason;
  if (infeasible.constraint != "memory") return fmt::format("{} binds", infeasible.constraint);
  // Galvatron's and the baselines' searches do not mix strategies as freely as the closest plan.
  if (infeasible.needed <= infeasible.available)
    return "of those that this algorithm looks at; the one below would";
  return fmt::format("stage {} needs {} on a device, {} may be used: {} too much", infeasible.stage,
                     format_bytes(infeasible.needed), format_bytes(infeasible.available),
                     format_bytes(infeasible.needed - infeasible.available));
}

std::string misfit_text(const std::string& title, const std::string& plan_name,
                        const Infeasible& infeasible, const RenderOptions& options) {
  const Plan& closest = infeasible.closest;
  std::string text = titled(title, Tone::bad, verdict(infeasible), Tone::plain, options) + '\n';
  Table table({Align::left, Align::left});
  add_task(table, closest, options);
  if (!closest.stages.empty())
    table.add({paint(plan_name, Tone::faint, options), shape_line(closest)});
  if (infeasible.rule) {
    table.add({paint("where", Tone::faint, options), printable(infeasible.rule->where)});
    table.add({paint("fix", Tone::faint, options), infeasible.rule->fix});
  }
  text += table.text(options);
  if (infeasible.breakdown.peak > Bytes(0))
    text += '\n' + memory_section({{infeasible.stage, infeasible.stage, infeasible.breakdown}},
                                  closest.cost, options);
  return text + remedies(infeasible, options);
}

}  // namespace

std::string alternatives_section(const std::vector<Alternative>& alternatives, Seconds best,
                                 const RenderOptions& options) {
  const auto title = [&](std::string_view text) { return paint(text, Tone::faint, options); };
  Table table({Align::right, Align::right, Align::right, Align::left});
  table.add({title("iteration"), title("slower"), title("peak"), title("plan, and why it lost")});
  for (const Alternative& alternative : alternatives) {
    const Seconds time = alternative.plan.prediction.iteration;
    table.add({format_seconds(time), fmt::format("+{:.1f}%", (time / best - 1) * 100),
               format_bytes(largest_peak(alternative.plan)), shape_line(alternative.plan)});
    table.add({"", "", "", paint(printable(alternative.reason), Tone::faint, options)});
  }
  return heading("Alternatives", "the best plans that lost", options) + table.text(options);
}

std::string render_text(const Plan& plan, const RenderOptions& options) {
  return headline(plan, nullptr, options) + '\n' + plan_sections(plan, options);
}

std::string render_text(const Infeasible& infeasible, const RenderOptions& options) {
  return misfit_text("The plan does not fit", "plan", infeasible, options);
}

std::string render_text(const SearchResult& result, const RenderOptions& options) {
  if (!result.plan)
    return result.infeasible
               ? misfit_text("No plan fits", "closest", *result.infeasible, options)
               : fmt::format("No plan was found before {}.\n",
                             result.statistics.ending == Ending::limit ? "--limit ended the search"
                                                                       : "the search was stopped");
  std::string text =
      headline(*result.plan, &result, options) + '\n' + plan_sections(*result.plan, options);
  if (!result.alternatives.empty())
    text += '\n' +
            alternatives_section(result.alternatives, result.plan->prediction.iteration, options);
  return text;
}

}  // namespace braid
