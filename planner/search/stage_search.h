#pragma once
// The exact stage partition: cuts and strategies together, over all cut points.

#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "planner/search/layer_search.h"

namespace braid {

// What one stage could hold: a menu for each block type, and for what stands outside the blocks.
struct StageMenus {
  std::vector<LayerMenu> blocks;  // by block type
  std::vector<LayerMenu> before;  // the embedding, on the first stage
  std::vector<LayerMenu> after;   // the head, on the last stage
  Transitions transitions;
  std::int64_t budget = 0;
  double ramp = 0, load = 0;  // that no choice changes: transfers to the next stage
};

struct PipelineProblem {
  std::vector<int> blocks;  // a type for each block, in order
  std::vector<StageMenus> stages;
  bool ramp_after = true;           // see cost/pipeline.h: do stages behind the bottleneck count?
  int multiple = 1;                 // blocks of a stage come in multiples of this (its chunks)
  std::vector<int> cuts;            // blocks of each stage where they are given; empty: free
  bool load_alone = false;          // ramps follow loads: each stage needs its least load only
  std::vector<double> proportions;  // of ramp to load on each stage, where they do
  Watch* watch = nullptr;           // asked by every search of it; may be null
};

struct PipelineSolution {
  double time = 0;
  std::vector<int> blocks;           // of each stage
  std::vector<SegmentPoint> stages;  // choices in order: before, blocks, after
};

// Combines stages from the first on: the sum of ramps, and the worst path so far (counted beyond
// the sum where ramps behind the bottleneck count too).
struct PathState {
  double sum = 0;
  double worst = 0;
  double time(bool ramp_after) const { return ramp_after ? sum + worst : worst; }
};
PathState extend(const PathState& before, double ramp, double load, bool ramp_after);

struct PipelineResult {
  std::optional<PipelineSolution> solution;  // none: nothing fits below the limit
  bool complete = true;                      // false: a limit was met; nothing is proven
  std::size_t work = 0;                      // candidates looked at
};

struct PipelineLimits {
  double time = 0;  // solutions at or above it are of no use
  std::size_t most_points = std::numeric_limits<std::size_t>::max();  // of a frontier
  std::size_t most_work =
      std::numeric_limits<std::size_t>::max();  // candidates; then beams are narrow
};

// The fastest solution below the limit.
PipelineResult search_pipeline(const PipelineProblem& problem, const PipelineLimits& limits);
// The fastest for given cuts.
PipelineResult search_cuts(const PipelineProblem& problem, const std::vector<int>& cuts,
                           const PipelineLimits& limits);
// A good solution, quickly: even cuts and each stage's quick choice.
std::optional<PipelineSolution> quick_pipeline(const PipelineProblem& problem);
// Simpler problems whose optima are lower bounds and need frontiers of one dimension less. Several
// stages: every ramp lowered to one proportion of its load, close where that hardly varies. One
// stage: ramp alone, load alone and their mean, of which the time is the larger.
std::vector<PipelineProblem> relaxations(const PipelineProblem& problem);
// Whether the relaxation is the problem itself: one stage, and nothing in it has a ramp.
bool load_decides(const PipelineProblem& problem);
// A lower bound of a relaxed problem, by the best cuts for bounds of its stages; none where it
// reaches the limit.
std::optional<double> bound_below(const PipelineProblem& relaxed_problem, double limit);
// The time of a choice under this problem, whichever problem it was found in.
double time_of(const PipelineProblem& problem, const PipelineSolution& solution);
// A lower bound that needs no search: the bottleneck is the mean, and memory counts for one stage
// only.
double pipeline_bound(const PipelineProblem& problem);

// Segments with equal keys cost the same: those of one block type are alike wherever they begin.
using SegmentKey = std::tuple<int, int, int>;
SegmentKey segment_key(const PipelineProblem& problem, int stage, int begin, int count);
// What a stage's layers have to fit into; `layers` must outlive it.
SegmentProblem segment_of(const PipelineProblem& problem, int stage,
                          const std::vector<const LayerMenu*>& layers);
// The layers of a stage that holds `count` blocks from `begin` on.
std::vector<const LayerMenu*> stage_layers(const PipelineProblem& problem, int stage, int begin,
                                           int count);
// The given cuts, or as even as multiples allow, the remainder spread over the middle stages, which
// have neither embedding nor head. Empty where there are too few blocks.
std::vector<int> even_cuts(const PipelineProblem& problem);

}  // namespace braid
