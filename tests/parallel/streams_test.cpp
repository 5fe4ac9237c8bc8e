#include "runtime/parallel/streams.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

namespace braid::parallel {
namespace {

TEST(Streams, OneTravelsAsItIs) {
  const at::Tensor x = at::arange(6).view({3, 2});
  EXPECT_TRUE(packed({x, {}}).is_same(x));
  EXPECT_EQ(message_shape({{3, 2}, {}}), (std::vector<std::int64_t>{3, 2}));
  const Streams back = unpacked(x, {{3, 2}, {}});
  EXPECT_TRUE(back.x.is_same(x));
  EXPECT_FALSE(back.side.defined());
}

TEST(Streams, TwoTravelAsOneAndLieApart) {
  const at::Tensor x = at::arange(6).view({3, 2}), side = at::arange(6, 14).view({2, 2, 2});
  const StreamShapes shapes{{3, 2}, {2, 2, 2}};
  const at::Tensor message = packed({x, side});
  EXPECT_EQ(message.sizes().vec(), message_shape(shapes));
  const Streams back = unpacked(message, shapes);
  EXPECT_TRUE(back.x.equal(x));
  EXPECT_TRUE(back.side.equal(side));
  EXPECT_EQ(back.x.storage().nbytes(), x.nbytes());
  EXPECT_EQ(back.side.storage().nbytes(), side.nbytes());
}

}  // namespace
}  // namespace braid::parallel
