#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <numeric>

#include "runtime/ops/attention.h"
#include "tests/ops/attention_cases.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

// Attention over all keys from blocks of queries and keys, as a ring plays it.
struct Ring {
  Attended whole;
  AttentionGradients gradients;
};
Ring ring_attention(const AttentionInputs& in, std::int64_t block, const Visibility& see,
                    const std::vector<std::int64_t>& order) {
  Ring ring{{at::zeros_like(in.q), at::Tensor()},
            {at::zeros_like(in.q), at::zeros_like(in.k), at::zeros_like(in.v)}};
  std::vector<at::Tensor> lse;
  const std::int64_t tokens = in.q.size(0);
  for (std::int64_t first = 0; first < tokens; first += block) {
    const std::int64_t queries = std::min(block, tokens - first);
    const auto mine = [&](const at::Tensor& x) { return x.narrow(0, first, queries); };
    const auto visibility = [&](std::int64_t key_begin) {
      return Visibility{see.causal, see.window, first, key_begin};
    };
    const auto block_of = [&](const at::Tensor& x, std::int64_t number) {
      return x.narrow(0, number * block, std::min(block, tokens - number * block));
    };
    Attended sum;
    for (const std::int64_t number : order) {
      const Attended part = attention(mine(in.q), block_of(in.k, number), block_of(in.v, number),
                                      kScale, visibility(number * block));
      sum = sum.out.defined() ? merge(sum, part) : part;
    }
    mine(ring.whole.out).copy_(sum.out);
    lse.push_back(sum.lse);
    for (const std::int64_t number : order) {
      const AttentionGradients part = attention_backward(
          mine(in.dout), mine(in.q), block_of(in.k, number), block_of(in.v, number), sum.out,
          sum.lse, kScale, visibility(number * block));
      mine(ring.gradients.dq).add_(part.dq);
      block_of(ring.gradients.dk, number).add_(part.dk);
      block_of(ring.gradients.dv, number).add_(part.dv);
    }
  }
  ring.whole.lse = at::cat(lse, 2);
  return ring;
}

TEST(AttentionRing, BlocksOfKeysInAnyOrderMakeTheWhole) {
  struct RingCase {
    const char* fact;
    std::int64_t tokens, block;
    Visibility see;
  };
  const RingCase cases[] = {
      {"causal", 12, 3, {}},
      {"causal, a short last block", 11, 4, {}},
      {"all", 12, 4, {.causal = false}},
      {"a window across blocks", 12, 3, {.window = 5}},
      {"a window inside a block", 12, 4, {.window = 2}},
      {"blocks of one", 5, 1, {}},
      {"longer than a tile", 260, 65, {}},
  };
  for (const at::Device device : test_devices()) {
    for (const RingCase& c : cases) {
      const AttentionInputs in =
          inputs_of({c.fact, c.tokens, c.tokens, 4, 2, 8, c.see}, at::kDouble, device);
      const Attended whole = attention(in.q, in.k, in.v, kScale, c.see);
      const AttentionGradients expected =
          attention_backward(in.dout, in.q, in.k, in.v, whole.out, whole.lse, kScale, c.see);
      std::vector<std::int64_t> order(static_cast<std::size_t>((c.tokens + c.block - 1) / c.block));
      std::iota(order.begin(), order.end(), 0);
      for (int turn = 0; turn < 3; ++turn) {
        const Ring ring = ring_attention(in, c.block, c.see, order);
        EXPECT_TRUE(close(ring.whole.out, whole.out, 1e-10)) << c.fact;
        EXPECT_TRUE(close(ring.whole.lse, whole.lse, 1e-10)) << c.fact;
        EXPECT_TRUE(close(together(ring.gradients), together(expected), 1e-10)) << c.fact;
        if (turn == 0) std::reverse(order.begin(), order.end());
        if (turn == 1) std::rotate(order.begin(), order.begin() + 1, order.end());
      }
    }
  }
}

TEST(AttentionRing, MergingWithNothingChangesNoBit) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const AttentionInputs in = inputs_of({"", 5, 5, 4, 2, 8, {}}, type, at::Device(at::kCPU));
    const Attended some = attention(in.q, in.k, in.v, kScale, {});
    const Attended none = attention(in.q, in.k, in.v, kScale, {.key_begin = 100});
    EXPECT_TRUE(none.lse.isneginf().all().item().toBool());
    for (const Attended& both : {merge(some, none), merge(none, some)}) {
      EXPECT_TRUE(identical(both.out, some.out));
      EXPECT_TRUE(identical(both.lse, some.lse));
    }
    const Attended nothing = merge(none, none);
    EXPECT_TRUE(identical(nothing.out, none.out));
    EXPECT_TRUE(identical(nothing.lse, none.lse));
  }
}

TEST(AttentionRing, MergeKeepsTheFirstSidesPrecision) {
  const AttentionInputs in =
      inputs_of({"", 5, 5, 4, 2, 8, {}}, at::kBFloat16, at::Device(at::kCPU));
  const Attended part = attention(in.q, in.k, in.v, kScale, {});
  EXPECT_EQ(merge({part.out.to(at::kFloat), part.lse}, part).out.scalar_type(), at::kFloat);
  EXPECT_EQ(merge(part, {part.out.to(at::kFloat), part.lse}).out.scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace braid::ops
