#include <fmt/core.h>

#include "planner/core/text.h"
#include "planner/explain/sections.h"
#include "planner/explain/summary.h"

namespace braid {
namespace {

constexpr std::size_t kBarWidth = 40;

// One unit for all shares, so that they compare at a glance.
std::string in_unit_of(Seconds whole, Seconds part) {
  if (whole < Seconds(1)) return fmt::format("{:.2f} ms", part.value() * 1e3);
  return fmt::format("{:.{}f} s", part.value(), whole < Seconds(10) ? 4 : 3);
}

Tone tone_of(const std::string& share) {
  if (share == "compute") return Tone::green;
  if (share == "bubble") return Tone::red;
  if (share == "recompute" || share == "update") return Tone::yellow;
  return Tone::blue;  // communication
}

std::string balance_remark(const Plan& plan) {
  const Balance balance = balance_of(plan);
  return fmt::format("time α_t {:.3f} · memory α_m {:.3f} · perfect would be {:.3f}", balance.time,
                     balance.memory, 1 - 1.0 / plan.shape.stages);
}

}  // namespace

std::string time_section(const Plan& plan, const RenderOptions& options) {
  const TimeBreakdown breakdown = time_breakdown(plan);
  const Seconds iteration = plan.prediction.iteration;
  Table table({Align::left, Align::right, Align::right, Align::left});
  for (const TimeShare& share : breakdown.shares) {
    const double fraction = share.time / iteration;
    table.add({share.name, in_unit_of(iteration, share.time), format_percent(fraction),
               paint(fraction_bar(fraction, kBarWidth), tone_of(share.name), options)});
  }
  table.add(
      {paint("iteration", Tone::strong, options), in_unit_of(iteration, iteration), "100.0%"});

  const bool pipeline = plan.shape.stages > 1;
  const std::string remark =
      pipeline ? fmt::format("stage {}, the busiest of {}", breakdown.stage, plan.shape.stages)
               : "";
  return heading("Where the time goes", remark, options) + table.text(options) +
         (pipeline ? '\n' + heading("Balance", balance_remark(plan), options) : "");
}

}  // namespace braid
