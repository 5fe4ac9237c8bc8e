#pragma once
// From a model and a cluster to the fastest plan that fits, with a proof of how good it is.

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/core/error.h"
#include "planner/plan/plan.h"
#include "planner/profile/profile.h"
#include "planner/search/decision_tree.h"
#include "planner/search/progress.h"

namespace braid {

enum class Algorithm { exact, galvatron, bmw, dp, zero3, tp, pp, megatron_3d };
std::string name_of(Algorithm algorithm);
const std::vector<std::string>& algorithm_names();

struct SearchOptions {
  Algorithm algorithm = Algorithm::exact;
  CostKind cost = CostKind::roofline;
  Bytes memory_limit;  // for one device; zero: all it has
  std::int64_t global_batch = 1;
  Precision precision = Precision::bf16;
  Precision gradient_precision = Precision::fp32;
  int threads = 1;
  int alternatives = 3;
  bool prove = true;  // bound the plan of another algorithm by an exact search, which takes longer
  SpaceOptions space;
  std::function<void(const SearchProgress&)> progress;  // called now and then, by any thread
  // Either ends the search with the best plan so far, wherever it is.
  const std::atomic<bool>* stop = nullptr;
  std::optional<double> time_limit;  // seconds from its start on
  // The exact search ends when its plan is proven to be within this fraction of the best.
  double enough_gap = 0;
};

// A plan that lost, and the first thing to say about why.
struct Alternative {
  Plan plan;
  std::string reason;
};

// Why nothing fits, and what would.
struct Infeasible {
  int stage = 0;
  std::string constraint;              // "memory", "batch", "layers", "strategy": what binds
  std::string reason;                  // a sentence, where it is the batch or the layers
  Bytes needed, available;             // of the plan that comes closest
  StagePrediction breakdown;           // its memory at that stage
  Plan closest;                        // without stages where it is not memory that binds
  std::optional<Mistake> rule;         // what every offered strategy breaks, where that is a rule
  std::optional<Bytes> enough_memory;  // the least memory of a device that fits, to one MiB
  std::optional<std::int64_t> enough_batch;  // a global batch that fits: larger where batch binds
  // Fewest devices that fit: within the node, then whole nodes. Where the batch binds, fewer
  // devices, on which it does not.
  std::optional<int> enough_devices;
};

// Balance of a pipeline as Galvatron-BMW measures it; 1 - 1/stages is perfect.
struct Balance {
  double time = 0, memory = 0;
};
Balance balance_of(const Plan& plan);

struct SearchStatistics {
  int configurations = 0;       // of pipeline, batch and mesh
  int solved = 0;               // in which a plan was found
  int open = 0;                 // that may hold a faster plan, of an exact search
  std::int64_t strategies = 0;  // priced
  double seconds = 0;
  double cpu_seconds = 0;
  bool interrupted = false;  // by a signal or the time limit
  Ending ending = Ending::complete;
};

struct SearchResult {
  std::optional<Plan> plan;  // none: infeasible
  // The fastest plan with one strategy for all blocks and stages of equal size, as Megatron-LM runs
  // them; may be the plan itself. Only the exact search looks for it.
  std::optional<Plan> uniform;
  std::vector<Alternative> alternatives;
  std::optional<Infeasible> infeasible;
  SearchStatistics statistics;
  DecisionTree tree;  // the space that was searched, and what rules left out of it

  double gap() const;  // of the plan's time over the lower bound, as a fraction
};

// The space that a search with these options begins with (one that finds nothing goes on without
// fill-pipeline: SearchResult::tree). `profile` may be null under the roofline.
DecisionTree searched_tree(const Model& model, const Cluster& cluster, const Profile* profile,
                           const SearchOptions& options);

// What search() answers where no plan fits; nothing where one does, which it finds without looking
// for the fastest. `profile` may be null under the roofline.
std::optional<SearchResult> search_unless_any_fits(const Model& model, const Cluster& cluster,
                                                   const Profile* profile,
                                                   const SearchOptions& options);

// `profile` may be null under the roofline.
SearchResult search(const Model& model, const Cluster& cluster, const Profile* profile,
                    const SearchOptions& options);

}  // namespace braid
