// The kernel of rotary positions against the operator in fp64 on the CPU.

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include "runtime/ops/fused.h"
#include "runtime/ops/rotary.h"
#include "tests/ops/cuda_cases.h"

namespace braid::ops {
namespace {

class CudaRotary : public KernelTest {};
BRAID_KERNEL_TYPES(CudaRotary);

struct Shape {
  std::int64_t tokens, batch, heads, kv_heads, head_dim;
};
constexpr Shape kShapes[] = {
    {5, 3, 4, 2, 16}, {3, 1, 2, 2, 64}, {4, 2, 3, 1, 6}, {2, 2, 33, 8, 128}};

RotaryTable table_of(const Shape& s, at::Device device) {
  const at::Tensor frequencies = random_tensor({s.head_dim / 2}, 9, at::kFloat, device).abs();
  return rotary_table(at::arange(s.tokens, at::TensorOptions(at::kLong).device(device)),
                      frequencies, at::kBFloat16);
}

RotaryTable exact_table(const RotaryTable& table) { return {exact(table.cos), exact(table.sin)}; }

QkvHeads exact_heads(const QkvHeads& heads) {
  return {exact(heads.q), exact(heads.k), exact(heads.v)};
}

TEST_P(CudaRotary, TurnsQAndKInPlaceAndLeavesVAlone) {
  for (const Shape& s : kShapes) {
    const RotaryTable table = table_of(s, device);
    const at::Tensor qkv = random({s.tokens, s.batch, (s.heads + 2 * s.kv_heads) * s.head_dim}, 1);
    const QkvHeads expected = rotary_heads(exact(qkv), s.heads, s.head_dim, exact_table(table));
    const QkvHeads turned = rotary_heads(qkv, s.heads, s.head_dim, table);
    EXPECT_EQ(turned.q.data_ptr(), qkv.data_ptr());
    EXPECT_TRUE(close(turned.q, expected.q, tolerance())) << s.head_dim;
    EXPECT_TRUE(close(turned.k, expected.k, tolerance())) << s.head_dim;
    EXPECT_EQ(relative_error(turned.v, expected.v), 0) << s.head_dim;
  }
}

TEST_P(CudaRotary, GradientsOfHeadsThatWereNotTurnedBecomeOneTensor) {
  for (const Shape& s : kShapes) {
    const auto gradient = [&](std::int64_t heads, std::uint64_t seed) {
      return random({s.batch, heads, s.tokens, s.head_dim}, seed).permute({2, 0, 1, 3});
    };
    const QkvHeads gradients{gradient(s.heads, 1), gradient(s.kv_heads, 2),
                             gradient(s.kv_heads, 3)};
    ASSERT_TRUE(fused::packed_heads(gradients, nullptr, false));
    const at::Tensor expected = heads_backward(exact_heads(gradients), nullptr).dqkv;
    EXPECT_EQ(relative_error(heads_backward(gradients, nullptr).dqkv, expected), 0) << s.head_dim;
    const PackedGradient few = heads_backward(gradients, nullptr, true);
    EXPECT_EQ(relative_error(few.dqkv, expected), 0) << s.head_dim;
    EXPECT_TRUE(close(few.rows.sum(0), expected.flatten(0, 1).sum(0), 2e-5)) << s.head_dim;
  }
}

TEST_P(CudaRotary, BackwardTurnsBackIntoOneTensor) {
  for (const Shape& s : kShapes) {
    const RotaryTable table = table_of(s, device);
    // As attention may give them: the batch first.
    const auto gradient = [&](std::int64_t heads, std::uint64_t seed) {
      return random({s.batch, s.tokens, heads, s.head_dim}, seed).transpose(0, 1);
    };
    const QkvHeads gradients{gradient(s.heads, 1), gradient(s.kv_heads, 2),
                             gradient(s.kv_heads, 3)};
    const RotaryTable precise = exact_table(table);
    const at::Tensor expected = heads_backward(exact_heads(gradients), &precise).dqkv;
    const PackedGradient packed = heads_backward(gradients, &table);
    EXPECT_TRUE(packed.dqkv.is_contiguous());
    EXPECT_TRUE(close(packed.dqkv, expected, tolerance())) << s.head_dim;
    EXPECT_TRUE(identical(packed.rows, packed.dqkv));
    const PackedGradient few = heads_backward(gradients, &table, true);
    EXPECT_TRUE(identical(few.dqkv, packed.dqkv));
    EXPECT_TRUE(close(few.rows.sum(0), expected.flatten(0, 1).sum(0), 2e-5)) << s.head_dim;
  }
}

}  // namespace
}  // namespace braid::ops
