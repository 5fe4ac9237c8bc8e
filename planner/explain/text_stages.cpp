#include <fmt/core.h>

#include <algorithm>

#include "planner/explain/sections.h"
#include "planner/explain/summary.h"

namespace braid {
namespace {

std::string span(int first, int last) {
  return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

std::string pipeline_remark(const Plan& plan) {
  const PipelineShape& shape = plan.shape;
  std::string text = shape.stages == 1 ? "no pipeline"
                                       : fmt::format("{} stages · schedule {}", shape.stages,
                                                     name_of(shape.schedule));
  if (shape.chunks > 1) text += fmt::format(" · {} chunks a stage", shape.chunks);
  text += fmt::format(" · {} micro-batch{} × {} sample{}", shape.micro_batches,
                      shape.micro_batches == 1 ? "" : "es", plan.micro_batch(),
                      plan.micro_batch() == 1 ? "" : "s");
  return text + fmt::format(" · mesh {}", name_of(plan.mesh_order));
}

// Ranks of the group's stages; scattered ones are shown by their step.
std::string devices_of(const StageGroup& group, const Mesh& mesh) {
  const DeviceSpan first = devices_of_stage(group.first, mesh);
  const DeviceSpan last = devices_of_stage(group.last, mesh);
  if (mesh.order != MeshOrder::dp_cp_tp_pp || mesh.stages == 1)
    return span(first.first, last.end - 1);
  const std::string lowest = span(group.first, group.last);
  return mesh.stage_devices() == 1 ? lowest : fmt::format("{} + {}k", lowest, mesh.stages);
}

// A group of stages has the same runs in each of them, shifted.
std::string layers_of_run(const LayerRun& run, const LayerRun& in_last_stage) {
  return span(run.first, in_last_stage.last);
}

}  // namespace

std::string stage_section(const Plan& plan, const RenderOptions& options) {
  const auto title = [&](std::string_view text) { return paint(text, Tone::faint, options); };
  const std::vector<StageGroup> groups = equal_stages(plan);
  const bool grouped = static_cast<int>(groups.size()) < plan.shape.stages;

  Table table({Align::left, Align::left, Align::left, Align::left, Align::right, Align::left});
  table.add({title("stage"), title("devices"), title("layers"), title("type"),
             title(grouped ? "each" : ""), title("strategy")});
  for (const StageGroup& group : groups) {
    const std::vector<LayerRun> runs = layer_runs(plan, group.first);
    const std::vector<LayerRun> last_runs = layer_runs(plan, group.last);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const LayerRun& run = runs[i];
      const std::string& type = plan.model.types[static_cast<std::size_t>(run.type)].name;
      const bool first = i == 0;
      table.add({first ? span(group.first, group.last) : "",
                 first ? devices_of(group, plan.mesh()) : "", layers_of_run(run, last_runs[i]),
                 printable(type), fmt::format("× {}", run.size()),
                 paint(to_string(run.strategy), Tone::cyan, options)});
    }
  }
  return heading("Stages", pipeline_remark(plan), options) + table.text(options);
}

}  // namespace braid
