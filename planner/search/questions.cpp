#include "planner/search/questions.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "planner/core/text.h"
#include "planner/plan/legal.h"

namespace braid {

namespace {

using Cut = std::tuple<TensorKind, int, int>;

// Whether one block, which keeps as little as it can, and the head leave room in the memory.
bool fits(const Model& model, const LayerQuestion& q, const QuestionOptions& options) {
  if (options.memory == Bytes()) return true;
  std::int64_t largest = 0;
  for (const LayerType& type : model.types) {
    const double share = static_cast<double>(q.samples) / (q.tp * q.cp);
    const Bytes kept = saved_bytes(type.shape, Recompute::full, options.precision);
    const Bytes moment = transient_bytes(type.shape, Recompute::none, options.precision);
    largest = std::max(largest, scaled(kept + moment, share).value());
  }
  return largest < options.memory.value();
}

std::vector<std::int64_t> thinned(const std::set<std::int64_t>& samples) {
  std::vector<std::int64_t> kept;
  for (const std::int64_t n : samples)
    if (kept.empty() || n >= 2 * kept.back() || n == *samples.rbegin()) kept.push_back(n);
  return kept;
}

int powers_up_to(int most) {
  int count = 0;
  for (int degree = 1; degree <= most; degree *= 2) ++count;
  return count;
}

}  // namespace

Questions layer_questions(const Model& model, const Cluster& cluster,
                          const QuestionOptions& options) {
  const DecisionTree tree = build_tree(model, cluster, options.global_batch, options.space);
  // Stages of one model may differ in what they allow; embedding and head follow their blocks.
  const auto legal = [&](const Strategy& s, std::int64_t micro_batch) {
    return std::ranges::any_of(model.types, [&](const LayerType& type) {
      if (type.shape.kind == LayerKind::embedding || type.shape.kind == LayerKind::head)
        return false;
      Strategy plain = s;
      plain.recompute = Recompute::none;
      plain.ep = 1;
      return !strategy_fault(type.shape, plain, micro_batch);
    });
  };
  std::map<Cut, std::set<std::int64_t>> asked;
  Questions questions;
  for (const TreeBranch& branch : tree.branches)
    for (const Configuration& c : tree.configurations) {
      if (c.shape.stages != branch.stages) continue;
      for (const Strategy& s : kept_strategies(branch)) {
        if (c.micro_batch % s.dp != 0) continue;
        // A square computes what as many megatron ranks do, step by step.
        if (s.tp_kind == TensorKind::spatial_temporal) continue;
        const LayerQuestion q{s.tp_kind, s.tp, s.cp, c.micro_batch / s.dp};
        std::set<std::int64_t>& samples = asked[{q.kind, q.tp, q.cp}];
        if (samples.contains(q.samples) || !legal(s, c.micro_batch) || !fits(model, q, options))
          continue;
        samples.insert(q.samples);
        ++questions.reachable;
      }
    }
  for (const auto& [cut, samples] : asked)
    for (const std::int64_t n : thinned(samples))
      questions.asked.push_back({std::get<0>(cut), std::get<1>(cut), std::get<2>(cut), n});
  const int degrees = powers_up_to(cluster.num_devices());
  const int kinds = 2 * degrees - 1;  // ulysses from 2 on
  questions.possible =
      kinds * degrees * static_cast<int>(divisors(static_cast<int>(options.global_batch)).size());
  return questions;
}

}  // namespace braid
