#include "tests/referee/space.h"

#include <algorithm>

#include "planner/core/text.h"
#include "tests/referee/random_case.h"

namespace braid::referee {

namespace {

bool within(int degree, int most) { return most == 0 || degree <= most; }

bool equal_blocks(const Model& model) {
  return std::all_of(model.layers.begin() + 1, model.layers.end() - 1,
                     [&](int type) { return type == model.layers[1]; });
}

class Enumeration {
 public:
  Enumeration(const SearchProblem& problem, const Plan& configuration, const VisitStages& visit)
      : space_(problem.options.space), plan_(configuration), visit_(visit) {
    for (const LayerType& type : plan_.model.types) {
      const auto legal =
          legal_strategies(type.shape, plan_.mesh().stage_devices(), plan_.micro_batch());
      auto& offered = offered_.emplace_back();
      for (const Strategy& s : legal)
        if (within(s.tp, space_.max_tp) && within(s.cp, space_.max_cp) &&
            (space_.recompute || s.recompute == Recompute::none))
          offered.push_back(s);
    }
  }

  // Blocks of the stages from `stage` on: `left` of them, a multiple of the chunks each.
  void cut(std::vector<int>& blocks, int left) {
    if (static_cast<int>(blocks.size()) == plan_.shape.stages) {
      if (left == 0) lay_out(blocks);
      return;
    }
    for (int count = plan_.shape.chunks; count <= left; count += plan_.shape.chunks) {
      blocks.push_back(count);
      cut(blocks, left - count);
      blocks.pop_back();
    }
  }

  double strategies_of_all_layers() const {
    double product = 1;
    for (const int type : plan_.model.layers)
      product *= static_cast<double>(offered_[static_cast<std::size_t>(type)].size());
    return product;
  }

 private:
  void lay_out(const std::vector<int>& blocks) {
    const int stages = plan_.shape.stages, chunks = plan_.shape.chunks;
    std::vector<StagePlan> laid(static_cast<std::size_t>(stages));
    int next = 1;  // behind the embedding
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int s = 0; s < stages; ++s) {
        const auto at = static_cast<std::size_t>(s);
        laid[at].chunks.push_back({next, next + blocks[at] / chunks});
        next += blocks[at] / chunks;
      }
    laid.front().chunks.front().begin = 0;
    laid.back().chunks.back().end = plan_.model.num_layers();
    for (StagePlan& stage : laid) stage.strategies.resize(layers_of(stage).size());
    choose(laid, 0, 0);
  }

  void choose(std::vector<StagePlan>& stages, std::size_t stage, std::size_t layer) {
    if (stage == stages.size()) return visit_(stages);
    const std::vector<int> layers = layers_of(stages[stage]);
    if (layer == layers.size()) return choose(stages, stage + 1, 0);
    const int type = plan_.model.layers[static_cast<std::size_t>(layers[layer])];
    for (const Strategy& s : offered_[static_cast<std::size_t>(type)]) {
      stages[stage].strategies[layer] = s;
      choose(stages, stage, layer + 1);
    }
  }

  const SpaceOptions& space_;
  const Plan& plan_;
  const VisitStages& visit_;
  std::vector<std::vector<Strategy>> offered_;  // by layer type
};

}  // namespace

std::vector<Plan> configurations(const SearchProblem& problem) {
  const SearchOptions& options = problem.options;
  const SpaceOptions& space = options.space;
  const int blocks = problem.model.num_layers() - 2;
  std::vector<Plan> all;
  for (const int stages : divisors(problem.cluster.num_devices())) {
    if (stages > blocks || !within(stages, space.max_pp)) continue;
    for (const int micro_batches : divisors(static_cast<int>(options.global_batch)))
      for (const MeshOrder order : space.mesh_orders)
        for (const ScheduleKind schedule :
             stages > 1 ? space.schedules : std::vector{ScheduleKind::one_f_one_b}) {
          const bool interleaved = schedule == ScheduleKind::interleaved;
          for (int chunks = interleaved ? 2 : 1; chunks <= (interleaved ? blocks : 1); ++chunks) {
            if (interleaved && (micro_batches % stages != 0 || !equal_blocks(problem.model) ||
                                blocks % (stages * chunks) != 0))
              continue;
            Plan& plan = all.emplace_back();
            plan.model = problem.model;
            plan.cluster = problem.cluster;
            plan.memory_limit = options.memory_limit;
            plan.precision = options.precision;
            plan.gradient_precision = options.gradient_precision;
            plan.global_batch = options.global_batch;
            plan.shape = {schedule, stages, micro_batches, chunks};
            plan.mesh_order = order;
          }
        }
  }
  return all;
}

void for_each_plan(const SearchProblem& problem, const Plan& configuration,
                   const VisitStages& visit) {
  std::vector<int> blocks;
  Enumeration(problem, configuration, visit).cut(blocks, configuration.model.num_layers() - 2);
}

double count_plans(const SearchProblem& problem, const Plan& configuration) {
  // Ways to give each stage one unit of blocks or more.
  const int units = (configuration.model.num_layers() - 2) / configuration.shape.chunks;
  double cuts = 1;
  for (int k = 1; k < configuration.shape.stages; ++k) cuts = cuts * (units - k) / k;
  return cuts * Enumeration(problem, configuration, {}).strategies_of_all_layers();
}

}  // namespace braid::referee
