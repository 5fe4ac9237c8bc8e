#include "planner/simulate/trace.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "planner/core/error.h"
#include "planner/model/layer_name.h"
#include "planner/plan/step_terms.h"
#include "planner/simulate/trace_writer.h"

namespace braid {
namespace {

// A part of one pass over a stage's layers, in seconds of the whole stage.
struct Part {
  std::optional<CommKind> kind;  // none: compute
  double seconds = 0;
};

std::vector<Part> parts_of(const StagePrediction& stage, OpKind pass) {
  const LayerTime& t = stage.terms;
  const Part redistribute{CommKind::redistribute, stage.redistribute / 2};
  if (pass == OpKind::forward)
    return {{CommKind::gather, t.forward_gather},   redistribute,
            {std::nullopt, t.forward_compute},      {CommKind::tensor, t.forward_tensor},
            {CommKind::context, t.forward_context}, {CommKind::expert, t.forward_expert}};
  if (pass == OpKind::backward_weight) return {{std::nullopt, t.backward_weight_compute}};
  const double weights = pass == OpKind::backward ? t.backward_weight_compute : 0;
  return {{CommKind::gather, t.backward_gather},
          {std::nullopt, t.recompute + t.backward_input_compute + weights},
          {CommKind::tensor, t.backward_tensor},
          {CommKind::context, t.backward_context},
          {CommKind::expert, t.backward_expert},
          redistribute};
}

// How much of a part falls to a layer, as a weight among the layers of its stage.
double weight_of(const LayerShape& layer, const Strategy& s, std::optional<CommKind> kind) {
  if (!kind) return forward_flops(layer).total().value();
  switch (*kind) {
    case CommKind::tensor:
      return s.tp > 1 ? 1 : 0;
    case CommKind::context:
      return s.cp > 1 && layer.attention != AttentionKind::none ? 1 : 0;
    case CommKind::expert:
      return layer.experts > 0 ? 1 : 0;
    case CommKind::gather:
      return s.replicas() > 1 && s.zero >= Zero::gradients ? static_cast<double>(parameters(layer))
                                                           : 0;
    case CommKind::redistribute:
    case CommKind::reduce:
    case CommKind::transfer:
    case CommKind::other:
      return 1;
  }
  internal_failure("unknown kind of communication", std::source_location::current());
}

class StageTrace {
 public:
  StageTrace(const Plan& plan, int stage, std::string name)
      : plan_(plan),
        stage_(stage),
        layers_(layers_of(plan.stages[static_cast<std::size_t>(stage)])) {
    process_.name = std::move(name);
  }

  void add(const SimulationEvent& event) {
    switch (event.op.kind) {
      case OpKind::forward:
      case OpKind::backward:
      case OpKind::backward_input:
      case OpKind::backward_weight:
        add_layers(event);
        break;
      case OpKind::reduce:
      case OpKind::update:
        if (event.end > event.start) {
          auto& track = event.op.kind == OpKind::reduce ? process_.communication : process_.compute;
          track.push_back({.name = name_of(event.op.kind),
                           .category = name_of(event.op.kind),
                           .start = event.start,
                           .end = event.end});
        }
        break;
      case OpKind::send_activation:
      case OpKind::receive_activation:
      case OpKind::send_gradient:
      case OpKind::receive_gradient:
        // A receive whose data was there already is no wait worth a slice.
        if (event.end > event.start)
          process_.communication.push_back({.name = transfer_label(event.op, plan_.shape.chunks),
                                            .category = name_of(CommKind::transfer),
                                            .start = event.start,
                                            .end = event.end,
                                            .micro_batch = event.op.micro_batch});
        break;
    }
  }

  void add(const CollectiveEvent& event) {
    if (event.end <= event.start) return;
    const std::string name = name_of(event.kind);
    process_.communication.push_back(
        {.name = event.micro_batch < 0 ? name : fmt::format("{} {}", name, event.micro_batch),
         .category = name,
         .start = event.start,
         .end = event.end,
         .micro_batch = event.micro_batch});
  }

  const TraceProcess& process() const { return process_; }

 private:
  // A slice of every pass of this kind over this chunk.
  struct Piece {
    std::size_t layer = 0;
    std::optional<CommKind> kind;
    double fraction = 0;  // of the pass
  };

  void add_layers(const SimulationEvent& event) {
    const auto key = std::pair(event.op.kind, event.op.chunk);
    if (!passes_.contains(key)) passes_[key] = pieces(event.op);
    Seconds now = event.start;
    for (const Piece& piece : passes_[key]) {
      const Seconds end = now + piece.fraction * (event.end - event.start);
      add_slice(event.op, piece, now, end);
      now = end;
    }
  }

  // Stages are taken to spread a micro-batch evenly over their chunks, as the simulator does.
  std::vector<Piece> pieces(const Op& op) const {
    const StagePlan& stage = plan_.stages[static_cast<std::size_t>(stage_)];
    std::size_t first = 0;
    for (int c = 0; c < op.chunk; ++c)
      first += static_cast<std::size_t>(stage.chunks[static_cast<std::size_t>(c)].size());
    const auto count =
        static_cast<std::size_t>(stage.chunks[static_cast<std::size_t>(op.chunk)].size());
    std::vector<Part> parts =
        parts_of(plan_.prediction.stages[static_cast<std::size_t>(stage_)], op.kind);
    const auto weight = [&](std::size_t layer, const Part& part) {
      return weight_of(plan_.model.type_of(layers_[layer]).shape, stage.strategies[layer],
                       part.kind);
    };
    double drawn = 0;
    for (Part& part : parts) {
      double all = 0;
      for (std::size_t i = first; i < first + count; ++i) all += weight(i, part);
      part.seconds = all > 0 ? part.seconds / all : 0;  // for a weight of one, from here on
      if (all > 0) drawn += part.seconds * all;
    }
    std::vector<Piece> list;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t layer = op.kind == OpKind::forward ? first + i : first + count - 1 - i;
      for (const Part& part : parts)
        if (const double seconds = part.seconds * weight(layer, part); seconds > 0)
          list.push_back({layer, part.kind, seconds / drawn});
    }
    return list;
  }

  void add_slice(const Op& op, const Piece& piece, Seconds start, Seconds end) {
    auto& track = piece.kind ? process_.communication : process_.compute;
    const std::string what =
        piece.kind ? name_of(*piece.kind) : phase_label(op.kind, op.micro_batch);
    track.push_back(
        {.name = fmt::format("{} {}", layer_name(plan_.model, layers_[piece.layer]), what),
         .category = piece.kind ? name_of(*piece.kind) : name_of(op.kind),
         .start = start,
         .end = end,
         .micro_batch = op.micro_batch});
  }

  const Plan& plan_;
  int stage_;
  std::vector<int> layers_;
  std::map<std::pair<OpKind, int>, std::vector<Piece>> passes_;
  TraceProcess process_;
};

std::string stage_name(int stage) { return fmt::format("stage {}", stage); }

std::string file_of(const std::vector<StageTrace>& traces) {
  std::vector<std::string> processes;
  processes.reserve(traces.size());
  for (const StageTrace& trace : traces)
    processes.push_back(trace_events(static_cast<int>(processes.size()), trace.process()));
  return trace_file(processes);
}

}  // namespace

std::string trace_json(const Simulation& simulation, const Plan& plan) {
  internal_check(!simulation.events.empty(), "a trace of a simulation that kept its events");
  std::vector<StageTrace> stages;
  stages.reserve(static_cast<std::size_t>(plan.shape.stages));
  for (int stage = 0; stage < plan.shape.stages; ++stage)
    stages.emplace_back(plan, stage, stage_name(stage));
  for (const SimulationEvent& event : simulation.events)
    stages[static_cast<std::size_t>(event.stage)].add(event);
  return file_of(stages);
}

std::string trace_json(const EventSimulation& simulation, const EventInput& input,
                       const Plan& plan) {
  // What was played beside compute is no part of a pass.
  Plan apart = plan;
  for (std::size_t i = 0; i < input.streams.size(); ++i) {
    const StageStreams& streams = input.streams[i];
    LayerTime& terms = apart.prediction.stages[i].terms;
    if (!streams.forward_gathers.empty() || !streams.scatters.empty())
      terms.forward_gather = terms.backward_gather = 0;
  }
  std::vector<StageTrace> traces;
  const auto stages = static_cast<std::size_t>(plan.shape.stages);
  traces.reserve(stages * simulation.classes.size());
  for (std::size_t c = 0; c < simulation.classes.size(); ++c) {
    const Simulation& replicas = simulation.classes[c];
    internal_check(!replicas.events.empty(), "a trace of a simulation that kept its events");
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
      std::string name = stage_name(stage);
      if (simulation.classes.size() > 1)
        name += fmt::format(" × {} of class {}", input.replicas[c].pipelines, c);
      traces.emplace_back(apart, stage, std::move(name));
    }
    for (const SimulationEvent& event : replicas.events)
      traces[c * stages + static_cast<std::size_t>(event.stage)].add(event);
    for (const CollectiveEvent& event : simulation.collectives)
      traces[c * stages + static_cast<std::size_t>(event.stage)].add(event);
  }
  return file_of(traces);
}

}  // namespace braid
