#pragma once
// What a pipeline costs, as closed forms. Every form here is a path through the schedule's
// dependency graph: a lower bound of what the event simulator plays, and equal to it where all
// stages are even.

#include <span>

#include "planner/core/units.h"
#include "planner/strategy/pipeline.h"

namespace braid {

// One stage, one micro-batch (all its chunks together), and what it does once an iteration.
struct StageTimes {
  Seconds forward;
  Seconds backward_input;
  Seconds backward_weight;
  Seconds reduce;  // gradient reduction that backward does not hide; once, after the last backward
  Seconds update;  // optimizer; once, after every stage has reduced (the gradient norm needs all)
  Seconds
      transfer;  // activation to the next stage (and its gradient back); one micro-batch, one way
};

// A linear form over a stage's times.
struct TimeWeights {
  double forward = 0, backward_input = 0, backward_weight = 0, reduce = 0, update = 0;
  double transfer = 0;
  // Without transfers.
  constexpr double operator()(double f, double bi, double bw, double r, double u) const {
    return forward * f + backward_input * bi + backward_weight * bw + reduce * r + update * u;
  }
  constexpr Seconds operator()(const StageTimes& t) const {
    return forward * t.forward + backward_input * t.backward_input +
           backward_weight * t.backward_weight + reduce * t.reduce + update * t.update +
           transfer * t.transfer;
  }
};

// Whether the schedule exists: chunks only under `interleaved`, which then takes micro-batches in
// groups of `stages`.
bool schedulable(const PipelineShape& shape);

// The path through one stage, the bottleneck: the pipeline fills up to it, it works through all
// micro-batches, the pipeline drains.
//   bottleneck time = max over stages i of
//     sum of ramp(j) for j < i  +  load(i)  +  (after ? sum of ramp(j) for j > i : 0)
// Linear in every stage's times, so a search over partitions can build it up stage by stage. A
// lower bound always; without transfers and with even stages it is the time itself (zero_bubble: as
// long as backward_weight exceeds neither forward nor backward_input).
struct StageWeights {
  TimeWeights ramp;  // what the stage adds to the filling and draining of the others
  TimeWeights load;  // what it takes itself when it is the bottleneck
};
StageWeights stage_weights(const PipelineShape& shape, int stage);
bool ramp_counts_after(ScheduleKind kind);
Seconds bottleneck_time(const PipelineShape& shape, std::span<const StageTimes> stages);

// What transfers add to even stages, when each takes `transfer`: the weights' own transfers and
// those on which stages keep waiting for each other. Exact for gpipe and 1F1B; for interleaved
// while a transfer is no longer than a chunk's forward and backward; for zero_bubble while two
// transfers are no longer than backward_weight, and too little beyond. Uneven stages hide a part of
// it, so it must not be added to a bound for those.
Seconds transfer_time(const PipelineShape& shape, Seconds transfer);

// The longest of the paths known in closed form: bottleneck_time, and those that turn around more
// than once or at several stages. A lower bound of the simulator's iteration for any stages and
// transfers; equal to it for even stages within the limits of transfer_time, and always for gpipe.
Seconds pipeline_time(const PipelineShape& shape, std::span<const StageTimes> stages);

// Compute of one micro-batch through all stages, whichever stage does it.
struct WholePass {
  Seconds forward_and_input;  // forward and backward by input
  Seconds weight;             // backward by weights
};
// A lower bound of pipeline_time for every way to cut the layers: paths that run through all stages
// and back. `transfers`: one way, behind each stage but the last.
Seconds least_pipeline_time(const PipelineShape& shape, const WholePass& pass,
                            std::span<const Seconds> transfers);

// The share of an iteration of even stages in which each waits for the others.
double resting_share(const PipelineShape& shape);

// The most micro-batches whose activations a stage holds at once, from forward to backward by
// input, in micro-batches of the whole stage (an interleaved stage's chunk counts 1/chunks).
double in_flight(const PipelineShape& shape, int stage);
// The most micro-batches whose weight gradients wait at once: backward by input runs ahead of them,
// the further the later the stage. None where backward is one piece.
int weights_waiting(const PipelineShape& shape, int stage);

// Least that a stage holds at once, at the end of one of its forward passes: never more than at
// the worst moment of the step.
struct HeldTogether {
  int activations = 0;     // micro-batches of every layer, from forward to backward by input
  int deferred = 0;        // micro-batches whose weight gradients wait
  bool gradients = false;  // every layer has made weight gradients in this step
};
HeldTogether held_together(const PipelineShape& shape, int stage);

}  // namespace braid
