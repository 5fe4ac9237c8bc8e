// Strategies of the layer search as partitions of operators, and back.

#include "planner/primepar/executable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/primepar/machines.h"

namespace braid {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";

std::string text_of(const Strategy& s, std::size_t op, std::int64_t micro_batch = 8,
                    Residual residual = Residual::cut, MeshOrder order = MeshOrder::pp_dp_cp_tp) {
  const LayerGraph graph = layer_graph({});
  return text_of(partitions_of(s, order, residual, micro_batch)[op],
                 letters_of(graph.operators[op].kind));
}

constexpr std::size_t kNorm = 1, kQkv = 2, kScores = 3, kProj = 6, kAct = 10, kFc2 = 11;
constexpr TensorKind kSquare = TensorKind::spatial_temporal;

TEST(Executable, AnAxisOfTheMeshHasOneRoleInEveryOperator) {
  const Strategy mixed{.tp = 2, .cp = 2, .dp = 2};
  EXPECT_EQ(text_of(mixed, kNorm), "{B, S, S}");
  EXPECT_EQ(text_of(mixed, kNorm, 8, Residual::copied), "{B, S, R}");
  EXPECT_EQ(text_of(mixed, kQkv), "{B, M, K}");
  EXPECT_EQ(text_of(mixed, kScores), "{B, S, H}");
  EXPECT_EQ(text_of(mixed, kProj), "{B, M, N}");
  EXPECT_EQ(text_of(mixed, kAct), "{B, S, D}");
  EXPECT_EQ(text_of(mixed, kQkv, 8, Residual::cut, MeshOrder::pp_tp_cp_dp), "{K, M, B}");
  const Strategy ulysses{.tp = 2, .tp_kind = TensorKind::ulysses, .dp = 2};
  EXPECT_EQ(text_of(ulysses, kQkv), "{B, M}");
  EXPECT_EQ(text_of(ulysses, kScores), "{B, H}");
  EXPECT_EQ(text_of(ulysses, kFc2), "{B, M}");
}

TEST(Executable, ASquareIsPPlusThenPMinusWithTheResidualStreamSkewed) {
  const Strategy two{.tp = 8, .tp_kind = kSquare, .square = 2};
  EXPECT_EQ(text_of(two, kNorm), "{S, skew2×2/B}");
  EXPECT_EQ(text_of(two, kQkv), "{K, P⁺2×2/B}");
  EXPECT_EQ(text_of(two, kScores), "{H, B, H}");
  EXPECT_EQ(text_of(two, kProj), "{N, P⁻2×2/B}");
  EXPECT_EQ(text_of(two, kAct), "{D, B, D}");
  // One sample has no rows to share.
  EXPECT_EQ(text_of(two, kQkv, 1), "{K, P⁺2×2}");
  EXPECT_EQ(text_of(two, kScores, 1), "{H, S, H}");
  const Strategy large{.tp = 16, .tp_kind = kSquare, .square = 4};
  EXPECT_EQ(text_of(large, kScores), "{B, H, B, H}");
}

// Every dense model of configs/.
std::vector<std::filesystem::path> models() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs / "models")) {
    const Model model = read_model(entry.path());
    const bool known = std::ranges::all_of(model.types, [](const LayerType& type) {
      return type.shape.kind != LayerKind::merge &&
             (type.shape.kind != LayerKind::block || !graph_fault(type.shape));
    });
    if (known) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

bool nearly_no_worse(const LayerTotals& a, const LayerTotals& b) {
  constexpr double kTicks = 1 + 1e-6;  // edges of a space are single floats
  return a.time() <= b.time() * kTicks && a.states <= b.states * kTicks &&
         a.stash <= b.stash * kTicks && a.workspace <= b.workspace * kTicks;
}

struct Found {
  int points = 0, run = 0;
};

// What the optimiser finds over all partitions and the runtime can run has the same price as a
// strategy, and is on the strategies' front or beaten there.
Found expect_front_has_all(const std::filesystem::path& file, const Cluster& cluster,
                           std::int64_t batch) {
  PrimeparTask task = primepar_task(read_model(file), file.string());
  task.batch = batch;
  const PrimeparMachine machine(cluster, task.precision);
  const PrimeparSpace space(task, machine, PrimeparVariant::plus_minus);
  const std::vector<ParetoPoint> points =
      primepar_pareto(space, alpha_sweep(optimize(space, 0).plan.totals));
  const ExecutableIndex index(executable_layers(task, machine), machine);
  const std::vector<ExecutableLayer> front = executable_front(index.layers());
  Found found{static_cast<int>(points.size()), 0};
  for (const ParetoPoint& point : points) {
    const ExecutableLayer* layer = index.find(point.plan.partitions);
    if (layer == nullptr) continue;
    ++found.run;
    const std::string name = file.stem().string() + ": " + to_string(layer->strategy);
    EXPECT_NEAR(layer->plan.totals.time(), point.plan.totals.time(),
                1e-6 * point.plan.totals.time())
        << name;
    EXPECT_DOUBLE_EQ(layer->plan.totals.states, point.plan.totals.states) << name;
    EXPECT_DOUBLE_EQ(layer->plan.totals.stash, point.plan.totals.stash) << name;
    EXPECT_TRUE(std::ranges::any_of(front, [&](const ExecutableLayer& other) {
      return nearly_no_worse(other.plan.totals, point.plan.totals);
    })) << name;
  }
  return found;
}

TEST(Executable, TheFrontHasEveryPointOfTheOptimiserThatCanBeRun) {
  const Cluster v100s = read_cluster(kConfigs / "clusters" / "v100-32g-8x4.json");
  ASSERT_GE(models().size(), 15U);
  for (const int devices : {2, 4, 8}) {
    Found all;
    for (const auto& file : models())
      for (const std::int64_t batch : {1, 8}) {
        const Found found = expect_front_has_all(file, shrink(v100s, devices), batch);
        all.points += found.points;
        all.run += found.run;
      }
    EXPECT_GT(all.run, 0) << devices;
    EXPECT_LT(all.run, all.points) << "most mix splits inside a layer, or lie between them as no "
                                      "strategy does";
  }
  const Cluster h100s = read_cluster(kConfigs / "clusters" / "h100-2x8.json");
  for (const char* name : {"llama2-7b.json", "llama3-70b.json"})
    EXPECT_GT(expect_front_has_all(kConfigs / "models" / name, h100s, 8).run, 0) << name;
}

TEST(Executable, PlansOfTheRuntimesMeshesAloneAreFound) {
  const PrimeparMachine machine(round_cluster(2, 2), Precision::fp32);
  const ExecutableIndex index(executable_layers(round_task(), machine), machine);
  const Strategy s{.tp = 2, .dp = 2};
  const auto found = [&](MeshOrder order) {
    return index.find(partitions_of(s, order, Residual::copied, 8));
  };
  for (const MeshOrder order : {MeshOrder::pp_dp_cp_tp, MeshOrder::pp_tp_cp_dp}) {
    ASSERT_NE(found(order), nullptr);
    EXPECT_EQ(found(order)->strategy, s);
    EXPECT_EQ(found(order)->order, order) << "what crosses the nodes tells them apart";
    EXPECT_EQ(found(order)->residual, Residual::copied);
  }
  // Attention under one split and feed-forward under another is no strategy.
  std::vector<Partition> mixed = partitions_of(s, MeshOrder::pp_dp_cp_tp, Residual::copied, 8);
  const std::vector<Partition> other =
      partitions_of({.dp = 4}, MeshOrder::pp_dp_cp_tp, Residual::cut, 8);
  std::copy(other.begin() + 9, other.begin() + 12, mixed.begin() + 9);
  EXPECT_EQ(index.find(mixed), nullptr);
}

TEST(Executable, BitsThatLieAlikeCanChangePlaces) {
  const PrimeparMachine machine(round_cluster(1, 4), Precision::fp32);
  const ExecutableIndex index(executable_layers(round_task(), machine), machine);
  const ExecutableLayer* layer =
      index.find(partitions_of({.tp = 2, .dp = 2}, MeshOrder::pp_tp_cp_dp, Residual::cut, 8));
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(layer->order, MeshOrder::pp_dp_cp_tp) << "one node: the usual order stands for both";
}

}  // namespace
}  // namespace braid
