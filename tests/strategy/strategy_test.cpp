// Strategies as values and as words.

#include "planner/strategy/strategy.h"

#include <gtest/gtest.h>

#include "planner/strategy/mesh.h"
#include "planner/strategy/pipeline.h"

namespace braid {
namespace {

struct NameCase {
  const char* text;
  Strategy strategy;
};

constexpr NameCase kNames[] = {
    {"single", {}},
    {"dp8", {.dp = 8}},
    {"tp4 dp2 zero3 recompute-full",
     {.tp = 4, .dp = 2, .zero = Zero::parameters, .recompute = Recompute::full}},
    {"ulysses8", {.tp = 8, .tp_kind = TensorKind::ulysses}},
    {"cp2 dp4 ep4 zero1", {.cp = 2, .dp = 4, .zero = Zero::optimizer, .ep = 4}},
    {"single recompute-selective", {.recompute = Recompute::selective}},
    {"tp2 cp2 dp2 zero2", {.tp = 2, .cp = 2, .dp = 2, .zero = Zero::gradients}},
};

TEST(Strategy, IsPrinted) {
  for (const NameCase& c : kNames) EXPECT_EQ(to_string(c.strategy), c.text);
}

TEST(Strategy, CountsItsDevices) {
  constexpr Strategy kMegatron{.tp = 4, .cp = 2, .dp = 3};
  EXPECT_EQ(kMegatron.devices(), 24);
  EXPECT_EQ(kMegatron.replicas(), 6);
  EXPECT_EQ(kMegatron.tensor_split(), 4);
  constexpr Strategy kUlysses{.tp = 4, .tp_kind = TensorKind::ulysses, .cp = 2, .dp = 3};
  EXPECT_EQ(kUlysses.devices(), 24);
  EXPECT_EQ(kUlysses.replicas(), 24);
  EXPECT_EQ(kUlysses.tensor_split(), 1);
}

TEST(Strategy, ComparesByEveryField) {
  const Strategy base;
  for (int Strategy::*degree : {&Strategy::tp, &Strategy::cp, &Strategy::dp, &Strategy::ep}) {
    Strategy other;
    other.*degree = 2;
    EXPECT_NE(base, other);
    EXPECT_LT(base, other);
  }
  EXPECT_NE(base, (Strategy{.tp_kind = TensorKind::ulysses}));
  EXPECT_NE(base, (Strategy{.zero = Zero::optimizer}));
  EXPECT_NE(base, (Strategy{.recompute = Recompute::full}));
}

TEST(Strategy, HasOneLayoutForEitherKindOfTensorParallelism) {
  const Strategy megatron{.tp = 4, .cp = 2, .dp = 3, .zero = Zero::parameters};
  const Strategy ulysses{.tp = 4, .tp_kind = TensorKind::ulysses, .cp = 2, .dp = 3};
  EXPECT_EQ(layout_of(megatron), layout_of(ulysses));
  EXPECT_EQ(layout_of(megatron), (ActivationLayout{.dp = 3, .cp = 2, .tp = 4}));
}

TEST(Names, AreThoseOfTheFiles) {
  EXPECT_EQ(name_of(TensorKind::megatron), "megatron");
  EXPECT_EQ(name_of(TensorKind::ulysses), "ulysses");
  EXPECT_EQ(name_of(Zero::none), "none");
  EXPECT_EQ(name_of(Zero::parameters), "parameters");
  EXPECT_EQ(name_of(ScheduleKind::gpipe), "gpipe");
  EXPECT_EQ(name_of(ScheduleKind::one_f_one_b), "1f1b");
  EXPECT_EQ(name_of(ScheduleKind::interleaved), "interleaved");
  EXPECT_EQ(name_of(ScheduleKind::zero_bubble), "zero_bubble");
  EXPECT_EQ(name_of(MeshOrder::pp_dp_cp_tp), "pp_dp_cp_tp");
  EXPECT_EQ(name_of(MeshOrder::dp_cp_tp_pp), "dp_cp_tp_pp");
  EXPECT_EQ(name_of(MeshOrder::pp_tp_cp_dp), "pp_tp_cp_dp");
}

}  // namespace
}  // namespace braid
