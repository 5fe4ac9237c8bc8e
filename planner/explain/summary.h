#pragma once
// What renderers say of a plan, as figures: derived here once, so that text, JSON and HTML agree.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/plan/plan.h"
#include "planner/search/search.h"

namespace braid {

// Neighbouring layers of one stage that are of one type and split alike.
struct LayerRun {
  int first = 0, last = 0;  // of the model's layers
  int type = 0;
  Strategy strategy;
  int size() const { return last - first + 1; }
};
std::vector<LayerRun> layer_runs(const Plan& plan, int stage);

// Stages [first, last] that hold as many layers of the same types, split alike.
struct StageGroup {
  int first = 0, last = 0;
  int size() const { return last - first + 1; }
};
std::vector<StageGroup> equal_stages(const Plan& plan);

// Where the iteration of one stage goes. The shares add up to the iteration.
struct TimeShare {
  std::string name;
  Seconds time;
};
struct TimeBreakdown {
  int stage = 0;
  std::vector<TimeShare> shares;  // those that are not zero
};
// Of the stage that is busy longest.
TimeBreakdown time_breakdown(const Plan& plan);
// The share of the iteration in which that stage waits for others.
double bubble_fraction(const TimeBreakdown& breakdown, Seconds iteration);

// The parts of what a device holds at a stage's worst moment.
struct MemoryParts {
  Bytes weights, gradients, optimizer;
  Bytes activations;  // of all micro-batches in flight
  Bytes workspace, slack, overhead;
};
MemoryParts memory_parts(const StagePrediction& stage);
// As a run holds them one by one: with the activations whose place gradients take later.
MemoryParts held_parts(const StagePrediction& stage);
// The stage that needs most, and the first one that does not fit.
int fullest_stage(const Prediction& prediction);
std::optional<int> first_overflow(const Prediction& prediction);

// Peaks of all devices together.
FlopsPerSecond cluster_peak(const Cluster& cluster, Precision precision);
// Whether the layers' shapes are known: a profile of another system carries times only.
bool knows_shapes(const Model& model);
// By how much an iteration exceeds a bound, as a fraction; none for a bound that was never set.
std::optional<double> excess(Seconds iteration, Seconds bound);

// The strategy that most blocks have, and how many others there are.
std::string strategy_line(const Plan& plan);
// "4 stages · 1f1b · 16 × 4 samples · tp4 dp2 zero1"
std::string shape_line(const Plan& plan);

// A plan that does not fit, told as a search would tell it; none where it fits.
std::optional<Infeasible> misfit(const Plan& plan);

}  // namespace braid
