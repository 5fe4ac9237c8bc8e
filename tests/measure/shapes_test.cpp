// Which groups are worth measuring: those of every plan, and no others.

#include "runtime/measure/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/random_plan.h"

namespace braid::measure {
namespace {

using testing::Contains;
using testing::ElementsAre;

TEST(Shapes, OfFourDevicesAreThree) {
  EXPECT_THAT(group_shapes(4), ElementsAre(GroupShape{2, 1}, GroupShape{2, 2}, GroupShape{4, 1}));
  EXPECT_THAT(message_distances(4), ElementsAre(1, 2));
}

TEST(Shapes, OfOneDeviceAreNone) {
  EXPECT_TRUE(group_shapes(1).empty());
  EXPECT_TRUE(message_distances(1).empty());
}

TEST(Shapes, OfSixDevicesHaveThreesToo) {
  const std::vector<GroupShape> shapes = group_shapes(6);
  EXPECT_THAT(shapes, Contains(GroupShape{3, 2}));  // two stages on neighbours, three replicas
  EXPECT_THAT(message_distances(6), ElementsAre(1, 2, 3));
}

TEST(Shapes, HoldEveryGroupOfEveryPlan) {
  PlanDice dice(5);
  for (int draw = 0; draw < 300; ++draw) {
    const Plan plan = dice.plan();
    const Mesh mesh = plan.mesh();
    const std::vector<GroupShape> shapes = group_shapes(mesh.devices);
    const auto expect = [&](const GroupShape& shape) {
      EXPECT_TRUE(shape.size == 1 || std::ranges::count(shapes, shape) == 1)
          << shape.size << "x" << shape.stride;
    };
    for (const StagePlan& stage : plan.stages)
      for (const Strategy& strategy : stage.strategies) {
        for (const Axis axis :
             {Axis::data, Axis::context, Axis::tensor, Axis::outer, Axis::row, Axis::column})
          expect(group_along(mesh, strategy, axis));
        expect(replica_group(mesh, strategy));
        expect(expert_group(mesh, strategy));
      }
    if (mesh.stages > 1) {
      EXPECT_THAT(message_distances(mesh.devices), Contains(stage_distance(mesh)));
    }
  }
}

TEST(Shapes, SizesGrowByEightAndEndWithTheLargest) {
  EXPECT_THAT(message_sizes(Bytes(8192)), ElementsAre(Bytes(1024), Bytes(8192)));
  EXPECT_THAT(message_sizes(Bytes(20000)), ElementsAre(Bytes(1024), Bytes(8192), Bytes(20000)));
  EXPECT_THAT(message_sizes(Bytes(10000)), ElementsAre(Bytes(1024), Bytes(8192)));
  EXPECT_EQ(message_sizes(Bytes(std::int64_t{1} << 30)).back(), Bytes(std::int64_t{1} << 30));
}

}  // namespace
}  // namespace braid::measure
