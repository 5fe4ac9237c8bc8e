#include "planner/explain/reserved.h"

#include <fmt/core.h>

#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/sections.h"
#include "planner/simulate/stage_memory.h"

namespace braid {

std::vector<ReservedMemory> reserved_by_stage(const Plan& plan) {
  std::vector<ReservedMemory> stages;
  stages.reserve(plan.stages.size());
  for (int i = 0; i < plan.shape.stages; ++i) {
    const StagePrediction& stage = plan.prediction.stages[static_cast<std::size_t>(i)];
    const std::vector<MemoryEvent> events = stage_allocations(plan, i);
    // Context and communicators are not the allocator's.
    const bool fits = !replay(events, stage.budget - stage.overhead).failed;
    stages.push_back({replay(events).peak, fits});
  }
  return stages;
}

std::string render_reserved(const std::vector<ReservedMemory>& stages, const Plan& plan,
                            const RenderOptions& options) {
  Table table({Align::right, Align::right, Align::right, Align::right, Align::right, Align::right,
               Align::left});
  std::vector<std::string> titles = {"stage",   "allocated", "reserved", "with overhead",
                                     "account", "budget",    ""};
  for (std::string& title : titles) title = paint(title, Tone::faint, options);
  table.add(titles);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StagePrediction& stage = plan.prediction.stages[i];
    const Bytes needed = stages[i].peak.reserved + stage.overhead;
    const bool tight = needed > stage.budget;
    table.add({std::to_string(i), format_bytes(stages[i].peak.allocated),
               format_bytes(stages[i].peak.reserved), format_bytes(needed),
               format_bytes(stage.peak), format_bytes(stage.budget),
               !stages[i].fits ? paint("does not fit", Tone::bad, options)
               : tight         ? "fits by giving free memory back"
                               : ""});
  }
  return heading("Memory", "the peaks of a caching allocator, beside the plan's account", options) +
         table.text(options);
}

Json reserved_json(const std::vector<ReservedMemory>& stages, const Plan& plan) {
  Json list = Json::array();
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const StagePrediction& stage = plan.prediction.stages[i];
    list.push_back({{"stage", i},
                    {"requested_bytes", stages[i].peak.requested.value()},
                    {"allocated_bytes", stages[i].peak.allocated.value()},
                    {"reserved_bytes", stages[i].peak.reserved.value()},
                    {"overhead_bytes", stage.overhead.value()},
                    {"account_bytes", stage.peak.value()},
                    {"budget_bytes", stage.budget.value()},
                    {"fits", stages[i].fits}});
  }
  return list;
}

}  // namespace braid
