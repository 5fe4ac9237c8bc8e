// Attention with something added to its scores, through a kernel that needs a GPU, against fp64.

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <vector>

#include "runtime/ops/attention.h"
#include "runtime/ops/attention_kernels.h"
#include "runtime/ops/fallback.h"
#include "tests/ops/cuda_cases.h"

namespace braid::ops {
namespace {

class CudaAttention : public GpuTest {};

struct BiasedCase {
  const char* fact;
  std::int64_t tokens, batch, heads, head_dim;
  Visibility see;
};

TEST_F(CudaAttention, TakesTablesSlopesAndPadding) {
  const auto table = [](std::int64_t rows, std::int64_t heads) {
    return random_tensor({rows, heads}, 9).to(at::kFloat);
  };
  const at::Tensor pair_rows = at::arange(49 * 49).mul(7).remainder(169).view({49, 49});
  const std::vector<BiasedCase> cases = {
      {"distances", 128, 3, 4, 64, {.causal = false, .by_distance = table(255, 4)}},
      {"causal distances", 100, 2, 2, 64, {.by_distance = table(255, 2)}},
      {"distances and padding",
       96,
       2,
       2,
       64,
       {.causal = false, .lengths = at::tensor({96, 31}), .by_distance = table(255, 2)}},
      {"slopes", 64, 2, 2, 128, {.slopes = at::tensor({0.5, 0.1})}},
      {"windows",
       49,
       6,
       3,
       32,
       {.causal = false,
        .by_distance = table(169, 3),
        .pair_rows = pair_rows,
        .by_group = random_tensor({3, 49, 49}, 8)}},
  };
  for (const BiasedCase& c : cases) {
    const auto tokens_of = [&](std::uint64_t seed) {
      return random({c.tokens, c.batch, c.heads, c.head_dim}, seed);
    };
    const at::Tensor q = tokens_of(1), k = tokens_of(2), v = tokens_of(3), dout = tokens_of(4);
    const auto see_on = [&](at::Device where, at::ScalarType wide) {
      Visibility see = c.see;
      for (at::Tensor* part :
           {&see.slopes, &see.lengths, &see.by_distance, &see.pair_rows, &see.by_group})
        if (part->defined()) *part = part->to(where);
      if (see.by_distance.defined())
        see.distance_gradient =
            at::zeros(see.by_distance.sizes(), at::TensorOptions(wide).device(where));
      return see;
    };
    const Visibility here = see_on(at::kCPU, at::kDouble), there = see_on(device, at::kFloat);
    constexpr double kScale = 0.125;
    const std::int64_t ahead = c.see.causal ? 0 : c.tokens;
    EXPECT_EQ(efficient_refusal(q, k, Band{c.tokens, ahead}, c.see), "") << c.fact;
    const Attended expected = attention(exact(q), exact(k), exact(v), kScale, here);
    const Attended found = attention(q, k, v, kScale, there);
    EXPECT_TRUE(close(found.out, expected.out, 1e-2)) << c.fact;
    EXPECT_TRUE(close(found.lse, expected.lse, 1e-2)) << c.fact;
    const AttentionGradients wanted = attention_backward(exact(dout), exact(q), exact(k), exact(v),
                                                         expected.out, expected.lse, kScale, here);
    const AttentionGradients made =
        attention_backward(dout, q, k, v, found.out, found.lse, kScale, there);
    EXPECT_TRUE(close(made.dq, wanted.dq, 2e-2)) << c.fact;
    EXPECT_TRUE(close(made.dk, wanted.dk, 2e-2)) << c.fact;
    EXPECT_TRUE(close(made.dv, wanted.dv, 2e-2)) << c.fact;
    if (!here.distance_gradient.defined()) continue;
    EXPECT_TRUE(close(there.distance_gradient, here.distance_gradient, 2e-2)) << c.fact;
  }
}

// Shapes and precisions decide, so the CPU's tensors are as good.
TEST(EfficientAttention, SaysWhatItDoesNotTake) {
  const auto tokens = [](std::int64_t count, std::int64_t heads, std::int64_t head_dim) {
    return at::zeros({count, 1, heads, head_dim}, at::kBFloat16);
  };
  const at::Tensor q = tokens(8, 4, 64);
  const Band causal{8, 0};
  EXPECT_EQ(efficient_refusal(q, q, causal, {}), "");
  EXPECT_EQ(efficient_refusal(q.to(at::kFloat), q.to(at::kFloat), causal, {}), "Float is not bf16");
  EXPECT_EQ(efficient_refusal(q, tokens(8, 2, 64), causal, {}), "4 heads share 2 of keys");
  EXPECT_EQ(efficient_refusal(tokens(8, 4, 60), tokens(8, 4, 60), causal, {}), "heads of 60");
  EXPECT_EQ(efficient_refusal(tokens(8, 4, 136), tokens(8, 4, 136), causal, {}), "heads of 136");
  EXPECT_EQ(efficient_refusal(q, q, Band{3, 0}, {}), "a mask that is neither causal nor empty");
  Visibility padded{.key_begin = 0, .lengths = at::tensor({5})};
  EXPECT_EQ(efficient_refusal(q, q, causal, padded), "");
  padded.key_begin = 8;
  EXPECT_EQ(efficient_refusal(q, q, causal, padded), "keys that may all be padding");
}

// What attention with slopes tells on a device, forward and backward, twice.
std::vector<std::string> told_of_slopes(at::Device device) {
  std::vector<std::string> lines;
  const FallbackListener before =
      on_fallback([&](const std::string& line) { lines.push_back(line); });
  const at::Tensor x = random_tensor({8, 1, 2, 16}, 1, at::kFloat, device);
  const Visibility see{.slopes = at::tensor({0.5, 0.1}).to(device)};
  for (int i = 0; i < 2; ++i) {
    const Attended made = attention(x, x, x, 0.25, see);
    attention_backward(x, x, x, x, made.out, made.lse, 0.25, see);
  }
  on_fallback(before);
  return lines;
}

TEST(EfficientAttention, IsNotMissedOnTheCpu) { EXPECT_TRUE(told_of_slopes(at::kCPU).empty()); }

TEST_F(CudaAttention, TellsOnceWhyItTakesMatrixProducts) {
  EXPECT_EQ(told_of_slopes(device),
            std::vector<std::string>{"attention with a bias or padding: Float is not bf16"});
}

}  // namespace
}  // namespace braid::ops
