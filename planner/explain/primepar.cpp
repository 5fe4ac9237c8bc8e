#include "planner/explain/primepar.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "planner/core/json.h"
#include "planner/core/text.h"

namespace braid {

namespace {

std::string seconds(double s) { return s == 0 ? "-" : format_seconds(Seconds(s)); }
std::string bytes(double b) { return format_bytes(Bytes(static_cast<std::int64_t>(std::ceil(b)))); }
std::string bytes_or_dash(double b) { return b == 0 ? "-" : bytes(b); }

double redistributed_into(const PrimeparAnswer& answer, std::size_t op) {
  double total = 0;
  for (std::size_t e = 0; e < answer.graph.edges.size(); ++e)
    if (answer.graph.edges[e].to == static_cast<int>(op))
      total += answer.result.plan.redistributes[e];
  return total;
}

std::string heading(const PrimeparAnswer& answer, const RenderOptions& options) {
  const PrimeparTask& task = answer.task;
  return paint(fmt::format("{} on {} devices", printable(answer.model), answer.devices),
               Tone::strong, options) +
         '\n' +
         paragraph(fmt::format("{} layers, {} samples of {} tokens a micro-batch, {}; {}",
                               task.layers, task.batch, task.block.tokens, name_of(task.precision),
                               printable(answer.cluster)),
                   options) +
         paragraph(
             fmt::format("variant {}, memory at {} s/GB, found in {}", name_of(answer.variant),
                         answer.alpha * 1e9, format_seconds(Seconds(answer.search_seconds))),
             options);
}

std::string operators_text(const PrimeparAnswer& answer, const RenderOptions& options) {
  using enum Align;
  Table table({left, left, right, right, right, right, right, right, right, right, right});
  table.add({"operator", "partition", "compute", "hidden", "exposed", "all-reduce", "gradients",
             "redistribute", "states", "stash", "workspace"});
  const PrimeparPlan& plan = answer.result.plan;
  for (std::size_t i = 0; i < plan.operators.size(); ++i) {
    const Operator& op = answer.graph.operators[i];
    const OperatorCost& cost = plan.operators[i];
    table.add({op.name, text_of(plan.partitions[i], letters_of(op.kind)), seconds(cost.compute),
               seconds(cost.ring_hidden), seconds(cost.ring_exposed), seconds(cost.all_reduce),
               seconds(cost.gradient_reduce), seconds(redistributed_into(answer, i)),
               bytes_or_dash(cost.states), bytes_or_dash(cost.stash),
               bytes_or_dash(cost.workspace)});
  }
  const LayerTotals& t = plan.totals;
  table.add({"layer", "", seconds(t.compute), seconds(t.ring_hidden), seconds(t.ring_exposed),
             seconds(t.all_reduce), seconds(t.gradient_reduce), seconds(t.redistribute),
             bytes(t.states), bytes(t.stash), bytes(t.workspace)});
  return table.text(options);
}

std::string schemes_text(const PrimeparAnswer& answer, const RenderOptions& options) {
  using enum Align;
  Table table({left, left, right, right, right, right, right, right, right, right});
  table.add({"scheme", "split", "layer", "speed", "exposed", "hidden", "states", "stash",
             "workspace", fmt::format("{} layers", answer.task.layers)});
  const LayerTotals& ours = answer.result.plan.totals;
  const auto row = [&](const std::string& name, const std::string& split, const LayerTotals& t) {
    table.add({name, split, seconds(t.time()), fmt::format("{:.3f}", ours.time() / t.time()),
               seconds(t.exposed()), seconds(t.ring_hidden), bytes(t.states), bytes(t.stash),
               bytes(t.workspace), bytes(t.memory(answer.task.layers))});
  };
  row("PrimePar", "as above", ours);
  for (const Scheme scheme : kSchemes) {
    std::vector<SchemePlan> plans;
    std::ranges::copy_if(answer.schemes, std::back_inserter(plans),
                         [&](const SchemePlan& p) { return p.scheme == scheme; });
    if (const SchemePlan* best = fastest(plans)) {
      row(name_of(scheme), fmt::format("{} data × {}", best->data, best->inner), best->totals);
    } else {
      table.add({name_of(scheme), "no split of these sizes"});
    }
  }
  return table.text(options);
}

std::string text_of(const ExecutableLayer& layer) {
  return layer.order == MeshOrder::pp_dp_cp_tp
             ? to_string(layer.strategy)
             : fmt::format("{} ({})", to_string(layer.strategy), name_of(layer.order));
}

std::string pareto_text(const PrimeparAnswer& answer, const RenderOptions& options) {
  using enum Align;
  Table table({left, right, right, right, right, left, left, left, left, left});
  table.add({"boundary", "layer", "states", "stash", "workspace", "qkv", "proj", "fc1", "fc2",
             "strategy"});
  constexpr std::size_t kLinears[] = {2, 6, 9, 11};
  for (const ParetoPoint& point : best_of_boundaries(answer.pareto)) {
    const LayerTotals& t = point.plan.totals;
    std::vector<std::string> row{text_of(point.plan.boundary(), Letters::elementwise),
                                 seconds(t.time()), bytes(t.states), bytes(t.stash),
                                 bytes(t.workspace)};
    for (const std::size_t op : kLinears)
      row.push_back(text_of(point.plan.partitions[op], Letters::linear));
    const ExecutableLayer* layer = answer.executable->find(point.plan.partitions);
    row.push_back(layer == nullptr ? "-" : text_of(*layer));
    table.add(std::move(row));
  }
  const auto runs = std::ranges::count_if(answer.pareto, [&](const ParetoPoint& point) {
    return answer.executable->find(point.plan.partitions) != nullptr;
  });
  return paragraph(fmt::format(
                       "Time against memory: {} plans in all, by boundary, of which {} {} of the "
                       "layer search; over all boundaries nothing beats these:",
                       answer.pareto.size(), runs, runs == 1 ? "is a strategy" : "are strategies"),
                   options) +
         table.text(options);
}

std::string executable_text(const PrimeparAnswer& answer, const RenderOptions& options) {
  using enum Align;
  Table table({left, left, right, right, right, right, right});
  table.add({"strategy", "residual stream", "layer", "speed", "states", "stash", "workspace"});
  for (const ExecutableLayer& layer : executable_front(answer.executable->layers())) {
    const LayerTotals& t = layer.plan.totals;
    table.add({text_of(layer), text_of(layer.plan.boundary(), Letters::elementwise),
               seconds(t.time()),
               fmt::format("{:.3f}", answer.result.plan.totals.time() / t.time()), bytes(t.states),
               bytes(t.stash), bytes(t.workspace)});
  }
  return table.text(options);
}

Json totals_json(const LayerTotals& t) {
  return {{"seconds", t.time()},
          {"compute", t.compute},
          {"hidden", t.ring_hidden},
          {"exposed", t.exposed()},
          {"ring_exposed", t.ring_exposed},
          {"all_reduce", t.all_reduce},
          {"gradient_reduce", t.gradient_reduce},
          {"redistribute", t.redistribute},
          {"states_bytes", t.states},
          {"stash_bytes", t.stash},
          {"workspace_bytes", t.workspace}};
}

Json partitions_json(const PrimeparPlan& plan, const LayerGraph& graph) {
  Json list = Json::array();
  for (std::size_t i = 0; i < plan.partitions.size(); ++i)
    list.push_back(text_of(plan.partitions[i], letters_of(graph.operators[i].kind)));
  return list;
}

Json executable_json(const ExecutableLayer& layer) {
  return {{"name", to_string(layer.strategy)}, {"mesh_order", name_of(layer.order)}};
}

Json operators_json(const PrimeparAnswer& answer) {
  Json list = Json::array();
  const PrimeparPlan& plan = answer.result.plan;
  for (std::size_t i = 0; i < plan.operators.size(); ++i) {
    const Operator& op = answer.graph.operators[i];
    const OperatorCost& cost = plan.operators[i];
    list.push_back({{"name", op.name},
                    {"partition", text_of(plan.partitions[i], letters_of(op.kind))},
                    {"compute", cost.compute},
                    {"ring_hidden", cost.ring_hidden},
                    {"ring_exposed", cost.ring_exposed},
                    {"all_reduce", cost.all_reduce},
                    {"gradient_reduce", cost.gradient_reduce},
                    {"redistribute", redistributed_into(answer, i)},
                    {"states_bytes", cost.states},
                    {"stash_bytes", cost.stash},
                    {"workspace_bytes", cost.workspace}});
  }
  return list;
}

}  // namespace

std::string render_primepar(const PrimeparAnswer& answer, const RenderOptions& options) {
  const PrimeparResult& result = answer.result;
  std::string text = heading(answer, options) + "\n" + operators_text(answer, options) + "\n";
  text += paragraph(
      fmt::format("{} layers: {} where each follows this plan, {} where they may differ{}",
                  answer.task.layers, seconds(result.objective * answer.task.layers),
                  seconds(result.stack), answer.alpha > 0 ? " (with the price of memory)" : ""),
      options);
  text +=
      "\nA layer under other schemes, each at its fastest split\n" + schemes_text(answer, options);
  if (!answer.pareto.empty())
    text +=
        "\n" + pareto_text(answer, options) + "\n" +
        paragraph("Strategies of the layer search that none of them beats, operator by operator",
                  options) +
        executable_text(answer, options);
  return text;
}

Json primepar_json(const PrimeparAnswer& answer) {
  const PrimeparTask& task = answer.task;
  Json json{{"status", "ok"},
            {"model", answer.model},
            {"cluster", answer.cluster},
            {"devices", answer.devices},
            {"layers", task.layers},
            {"batch", task.batch},
            {"accumulate", task.accumulate},
            {"sequence", task.block.tokens},
            {"precision", name_of(task.precision)},
            {"variant", name_of(answer.variant)},
            {"alpha", answer.alpha},
            {"search_seconds", answer.search_seconds},
            {"layer", totals_json(answer.result.plan.totals)},
            {"stack_seconds", answer.result.stack},
            {"operators", operators_json(answer)},
            {"schemes", Json::array()}};
  for (const SchemePlan& plan : answer.schemes)
    json["schemes"].push_back({{"scheme", name_of(plan.scheme)},
                               {"data", plan.data},
                               {"inner", plan.inner},
                               {"layer", totals_json(plan.totals)}});
  if (!answer.pareto.empty()) {
    json["pareto"] = Json::array();
    for (const ParetoPoint& point : answer.pareto) {
      const ExecutableLayer* layer = answer.executable->find(point.plan.partitions);
      json["pareto"].push_back({{"alpha", point.alpha},
                                {"layer", totals_json(point.plan.totals)},
                                {"partitions", partitions_json(point.plan, answer.graph)},
                                {"strategy", layer == nullptr ? Json() : executable_json(*layer)}});
    }
    json["executable_front"] = Json::array();
    for (const ExecutableLayer& layer : executable_front(answer.executable->layers())) {
      json["executable_front"].push_back(executable_json(layer));
      json["executable_front"].back()["layer"] = totals_json(layer.plan.totals);
    }
  }
  return json;
}

}  // namespace braid
