#include "planner/explain/streams.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/sections.h"
#include "planner/explain/timeline.h"

namespace braid {
namespace {

struct Part {
  const char* title;
  const char* json;
  Seconds DeviceUse::*member;
};
constexpr Part kParts[] = {
    {"transfer", "transfer_seconds", &DeviceUse::transfer},
    {"gather", "gather_seconds", &DeviceUse::gather},
    {"reduce", "reduce_seconds", &DeviceUse::reduce},
    {"replicas", "replicas_seconds", &DeviceUse::replicas},
    {"bubble", "bubble_seconds", &DeviceUse::bubble},
    {"links", "waited_for_links_seconds", &DeviceUse::waited_for_links},
    {"slowed compute", "slowed_compute_seconds", &DeviceUse::slowed_compute},
    {"slowed comm", "slowed_communication_seconds", &DeviceUse::slowed_communication},
};
constexpr std::size_t kMostRows = 32;

Seconds worked(const DeviceUse& d) {
  return d.forward + d.backward_input + d.backward_weight + d.update;
}

}  // namespace

std::size_t slowest_class(const EventSimulation& simulation) {
  const std::size_t stages = simulation.devices.size() / simulation.classes.size();
  std::size_t slowest = 0;
  Seconds most;
  for (std::size_t i = 0; i < simulation.devices.size(); ++i) {
    if (worked(simulation.devices[i]) <= most) continue;
    most = worked(simulation.devices[i]);
    slowest = i / stages;
  }
  return slowest;
}

std::string render_streams(const EventSimulation& simulation, const EventInput& input,
                           const RenderOptions& options) {
  std::vector<Part> parts;
  for (const Part& part : kParts) {
    const bool anywhere = std::ranges::any_of(simulation.devices, [&](const DeviceUse& d) {
      return d.*part.member > 1e-9 * simulation.iteration;
    });
    if (anywhere) parts.push_back(part);
  }
  const bool several = simulation.classes.size() > 1;
  Table table(std::vector<Align>(parts.size() + (several ? 2 : 1), Align::right));
  std::vector<std::string> titles = {"stage"};
  if (several) titles.emplace_back("pipelines");
  for (const Part& part : parts) titles.emplace_back(part.title);
  for (std::string& title : titles) title = paint(title, Tone::faint, options);
  table.add(titles);
  const auto stages = static_cast<std::size_t>(input.shape.stages);
  for (std::size_t i = 0; i < std::min(simulation.devices.size(), kMostRows); ++i) {
    // Classes of one stage below each other.
    const std::size_t stage = i / simulation.classes.size(), c = i % simulation.classes.size();
    std::vector<std::string> row = {c == 0 ? std::to_string(stage) : ""};
    if (several) row.push_back(std::to_string(input.replicas[c].pipelines));
    for (const Part& part : parts)
      row.push_back(format_seconds(simulation.devices[c * stages + stage].*part.member));
    table.add(row);
  }
  if (simulation.devices.size() > kMostRows) table.add({"…"});
  return heading("Waiting", "what a device stands still for, then what took longer", options) +
         table.text(options);
}

Json event_simulation_json(const EventSimulation& simulation, const EventInput& input) {
  Json json = simulation_json(simulation.classes[slowest_class(simulation)]);
  const auto stages = static_cast<std::size_t>(input.shape.stages);
  Json devices = Json::array();
  for (std::size_t i = 0; i < simulation.devices.size(); ++i) {
    const DeviceUse& d = simulation.devices[i];
    const int pipelines = input.replicas.empty() ? 1 : input.replicas[i / stages].pipelines;
    Json device = {{"stage", i % stages},
                   {"pipelines", pipelines},
                   {"forward_seconds", d.forward.value()},
                   {"backward_input_seconds", d.backward_input.value()},
                   {"backward_weight_seconds", d.backward_weight.value()},
                   {"update_seconds", d.update.value()}};
    for (const Part& part : kParts) device[part.json] = (d.*part.member).value();
    devices.push_back(std::move(device));
  }
  json["devices"] = std::move(devices);
  return json;
}

}  // namespace braid
