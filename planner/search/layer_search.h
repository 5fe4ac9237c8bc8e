#pragma once
// The exact layer search: one strategy for each layer of a stage, by dynamic programming that keeps
// Pareto frontiers of time and memory. docs/design/0002 has the argument why nothing is lost.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace braid {

class Watch;

// One strategy for one layer type on one stage, reduced to what the search compares.
struct LayerOption {
  double ramp = 0;  // seconds, as cost/pipeline's StageWeights make them
  double load = 0;
  std::int64_t memory = 0;     // bytes that add up over the layers of a stage
  std::int64_t workspace = 0;  // bytes of which a stage needs the largest
  int layout = 0;              // how activations lie; index into Transitions
  int strategy = 0;            // the caller's name for it
};

struct LayerMenu {
  std::vector<LayerOption> options;
};

// Cost of a change of layout between neighbouring layers. No way through a third layout is
// shorter; dominance relies on it.
class Transitions {
 public:
  explicit Transitions(int layouts = 1);
  void set(int from, int to, double ramp, double load);

  int layouts() const { return layouts_; }
  double ramp(int from, int to) const { return ramp_[index(from, to)]; }
  double load(int from, int to) const { return load_[index(from, to)]; }

 private:
  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(layouts_) +
           static_cast<std::size_t>(to);
  }
  int layouts_;
  std::vector<double> ramp_, load_;
};

struct SegmentProblem {
  // Whether layer l follows the one ahead of it on the same stage.
  bool follows(std::size_t l) const {
    if (l <= first_block || chunk_blocks == 0) return l > 0;
    const std::size_t block = l - first_block;
    return block % chunk_blocks != 0 || block / chunk_blocks >= chunks;
  }

  std::span<const LayerMenu* const> layers;  // in order; equal layers share a menu
  const Transitions* transitions = nullptr;
  std::int64_t budget = 0;  // for memory + workspace
  // Chunks of equally many blocks, from first_block on. What a chunk's first layer is given comes
  // from another stage, so that no change of layout lies between chunks.
  std::size_t first_block = 0, chunk_blocks = 0, chunks = 1;
  double load_limit = 0;  // points with a load at or above it are of no use
  double ramp_limit = std::numeric_limits<double>::infinity();  // nor with such a ramp
  bool load_alone = false;  // only the point of least load is asked for
  std::size_t most_points =
      std::numeric_limits<std::size_t>::max();  // of the frontier at any layer
  std::size_t most_work =
      std::numeric_limits<std::size_t>::max();  // candidates; then the frontier is a narrow beam
  Watch* watch = nullptr;                       // asked on the way; may be null
};

struct SegmentPoint {
  double ramp = 0;
  double load = 0;
  std::int64_t memory = 0;  // without workspace
  std::int64_t workspace = 0;
  std::vector<int> choice;  // an index into each layer's menu
};

struct SegmentResult {
  std::vector<SegmentPoint> points;  // least load first
  bool complete = true;  // false: the frontier outgrew `most_points`; better ones may exist
  std::size_t work = 0;  // candidates looked at
};

// Every Pareto point of (ramp, load) that fits the budget and stays below the limits; none where
// there is none.
SegmentResult search_segment(const SegmentProblem& problem);

// What a choice adds up to.
SegmentPoint measure_segment(const SegmentProblem& problem, const std::vector<int>& choice);

// A good point, quickly: the dual's choice, mended until it fits and then improved layer by layer.
std::optional<SegmentPoint> quick_segment(const SegmentProblem& problem);

// A lower bound of any fitting segment's load (infinity where none fits): the Lagrangian dual of
// the memory constraint, tight to about one layer's difference between two options.
double segment_load_bound(const SegmentProblem& problem);

// Drops options that another of the same layout beats or equals in everything.
void drop_dominated(LayerMenu& menu);

}  // namespace braid
