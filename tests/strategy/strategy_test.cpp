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
    {"st2x2", {.tp = 4, .tp_kind = TensorKind::spatial_temporal, .square = 2}},
    {"tp2 st2x2 dp2", {.tp = 8, .tp_kind = TensorKind::spatial_temporal, .dp = 2, .square = 2}},
    {"st4x4.paper",
     {.tp = 16,
      .tp_kind = TensorKind::spatial_temporal,
      .square = 4,
      .variant = SquareVariant::paper}},
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
  constexpr Strategy kSquare{
      .tp = 8, .tp_kind = TensorKind::spatial_temporal, .cp = 2, .dp = 3, .square = 2};
  EXPECT_EQ(kSquare.devices(), 48);
  EXPECT_EQ(kSquare.replicas(), 6);
  EXPECT_EQ(kSquare.outer(), 2);
  EXPECT_EQ(kSquare.tensor_split(), 4) << "columns of two squares";
  EXPECT_EQ(kSquare.hidden_split(), 2);
}

TEST(Strategy, RowsOfASquareShareTheSamplesTheyDivide) {
  constexpr Strategy kSquare{
      .tp = 4, .tp_kind = TensorKind::spatial_temporal, .dp = 3, .square = 2};
  EXPECT_TRUE(rows_share_samples(kSquare, 12));
  EXPECT_FALSE(rows_share_samples(kSquare, 9)) << "three samples a replica";
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
  EXPECT_NE(base, (Strategy{.square = 2}));
  EXPECT_NE(base, (Strategy{.variant = SquareVariant::paper}));
}

TEST(Strategy, HasOneLayoutForEitherKindOfTensorParallelism) {
  const Strategy megatron{.tp = 4, .cp = 2, .dp = 3, .zero = Zero::parameters};
  const Strategy ulysses{.tp = 4, .tp_kind = TensorKind::ulysses, .cp = 2, .dp = 3};
  EXPECT_EQ(layout_of(megatron), layout_of(ulysses));
  EXPECT_EQ(layout_of(megatron), (ActivationLayout{.dp = 3, .cp = 2, .tp = 4}));
  Strategy square = megatron;
  square.tp_kind = TensorKind::spatial_temporal;
  square.square = 2;
  EXPECT_NE(layout_of(square), layout_of(megatron)) << "a square cuts the width too";
}

TEST(Names, AreThoseOfTheFiles) {
  EXPECT_EQ(name_of(TensorKind::megatron), "megatron");
  EXPECT_EQ(name_of(TensorKind::ulysses), "ulysses");
  EXPECT_EQ(name_of(TensorKind::spatial_temporal), "spatial_temporal");
  EXPECT_EQ(name_of(SquareVariant::plus_minus), "plus_minus");
  EXPECT_EQ(name_of(SquareVariant::paper), "paper");
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
