// Dropout is a function of step, sample, token and channel: no layout, schedule or recomputation
// changes a mask.

#include <gtest/gtest.h>

#include "tests/parallel/sites.h"
#include "tests/support/training.h"

namespace braid::train {
namespace {

constexpr int kSteps = 3;

Outcome trained(const Plan& plan, double dropout) {
  WorkerOptions options = fp64_options();
  options.model.dropout = dropout;
  return train_in_process(plan, kSteps, options);
}

Plan plan_of(const std::string& model, Strategy strategy, int micro_batches) {
  const Model tiny = tiny_model(model, 2, 16);
  Plan plan = parallel::uniform_plan(tiny, strategy, MeshOrder::pp_dp_cp_tp);
  for (int layer = 0; layer < tiny.num_layers(); ++layer) {
    Strategy& s = plan.stages[0].strategies[static_cast<std::size_t>(layer)];
    if (tiny.type_of(layer).shape.kind != LayerKind::block) s.recompute = Recompute::none;
    if (tiny.type_of(layer).shape.kind != LayerKind::block && s.square > 1) s = {.tp = s.tp};
    if (tiny.type_of(layer).shape.experts == 0) s.ep = 1;
  }
  plan.global_batch = 4;
  plan.shape.micro_batches = micro_batches;
  verify(plan, "test");
  return plan;
}

TEST(Dropout, MasksAreTheSameUnderEveryLayout) {
  struct Case {
    const char* model;
    Strategy strategy;
    int micro_batches;
  };
  const Case cases[] = {
      {"gpt2", {.tp = 2, .cp = 2}, 2},
      {"gpt2", {.dp = 4, .zero = Zero::parameters, .recompute = Recompute::full}, 1},
      {"gpt2", {.tp = 2, .tp_kind = TensorKind::ulysses, .dp = 2}, 2},
      {"gpt2", {.tp = 4, .tp_kind = TensorKind::spatial_temporal, .square = 2}, 1},
      {"gpt2", {.tp = 4, .tp_kind = TensorKind::spatial_temporal, .square = 2}, 4},
      {"mixtral", {.tp = 2, .dp = 2, .ep = 2, .recompute = Recompute::selective}, 1},
  };
  for (const Case& c : cases) {
    const Outcome expected = trained(plan_of(c.model, {}, 1), 0.1);
    const Outcome got = trained(plan_of(c.model, c.strategy, c.micro_batches), 0.1);
    for (std::size_t step = 0; step < kSteps; ++step)
      EXPECT_TRUE(std::abs(got.losses[step] / expected.losses[step] - 1) <= 1e-9)
          << c.model << ", " << to_string(c.strategy) << ", step " << step << ": "
          << got.losses[step] << ", expected " << expected.losses[step];
  }
}

TEST(Dropout, DropsSomethingElseEachStep) {
  const Outcome none = trained(plan_of("gpt2", {}, 1), 0);
  const Outcome some = trained(plan_of("gpt2", {}, 1), 0.1);
  EXPECT_GT(std::abs(some.losses[0] - none.losses[0]), 1e-6);
  // The same samples at a learning rate of 0: only the masks differ from step to step.
  WorkerOptions options = fp64_options();
  options.model.dropout = 0.1;
  comm::run_in_process(1, [&](comm::Group& world) {
    const Plan plan = plan_of("gpt2", {}, 1);
    const SampleSource samples = synthetic_samples(plan.model);
    const SampleSource same = {.read =
                                   [&](std::int64_t sample, std::span<std::int64_t> inputs,
                                       std::span<std::int64_t> labels) {
                                     samples.read(sample % plan.global_batch, inputs, labels);
                                   },
                               .ignores_labels = false};
    Worker worker(plan, world, options, same);
    const double first = worker.step(0, 0).loss;
    EXPECT_GT(std::abs(worker.step(1, 0).loss - first), 1e-6);
    EXPECT_EQ(worker.step(0, 0).loss, first);
  });
}

}  // namespace
}  // namespace braid::train
