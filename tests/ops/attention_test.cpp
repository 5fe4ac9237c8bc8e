#include "runtime/ops/attention.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "runtime/ops/attention_kernels.h"
#include "runtime/ops/autograd.h"
#include "tests/ops/attention_cases.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const AttentionCase kCases[] = {
    {"causal", 7, 7, 3, 3, 8, {}},
    {"causal, more than one tile", 300, 300, 2, 1, 8, {}},
    {"grouped heads", 7, 7, 6, 2, 8, {}},
    {"one key head for all", 5, 5, 4, 1, 4, {}},
    {"odd head_dim", 5, 5, 2, 2, 3, {}},
    {"one token", 1, 1, 2, 2, 8, {}},
    {"all tokens see all", 7, 7, 4, 2, 8, {.causal = false}},
    {"an encoder's keys", 3, 9, 2, 2, 8, {.causal = false}},
    {"more queries than keys", 9, 3, 2, 2, 8, {.causal = false}},
    {"a window", 9, 9, 4, 2, 8, {.window = 3}},
    {"a window of one", 6, 6, 2, 2, 8, {.window = 1}},
    {"a window as long as the tokens", 6, 6, 2, 2, 8, {.window = 6}},
    {"a window over more than one tile", 130, 130, 2, 1, 8, {.window = 40}},
    {"keys all before", 4, 6, 2, 1, 8, {.query_begin = 6}},
    {"keys all before, window reaches some", 4, 6, 2, 1, 8, {.window = 4, .query_begin = 6}},
    {"window misses the last queries", 6, 4, 2, 2, 8, {.window = 3, .query_begin = 4}},
    {"keys all after", 4, 4, 2, 2, 8, {.key_begin = 4}},
    {"window ends before the queries", 4, 4, 2, 2, 8, {.window = 2, .query_begin = 9}},
    {"keys begin among the queries", 6, 6, 4, 2, 8, {.query_begin = 2, .key_begin = 5}},
    {"queries begin among the keys", 6, 6, 4, 2, 8, {.query_begin = 5, .key_begin = 2}},
    {"a decoder's last queries", 2, 9, 2, 1, 8, {.query_begin = 7}},
    {"unequal aligned blocks", 5, 8, 2, 2, 8, {.query_begin = 3, .key_begin = 3}},
    {"more aligned queries than keys", 8, 5, 2, 2, 8, {.query_begin = 3, .key_begin = 3}},
    {"window and offset", 7, 5, 4, 2, 8, {.window = 4, .query_begin = 6, .key_begin = 4}},
};

bool sees(const Visibility& see, std::int64_t query, std::int64_t key) {
  if (!see.causal) return true;
  const std::int64_t back = see.query_begin + query - see.key_begin - key;
  return back >= 0 && (see.window == 0 || back < see.window);
}

// 0 where a query sees a key, else -inf; pair by pair.
at::Tensor mask_of(const AttentionCase& c, at::Device device) {
  const at::Tensor mask = at::zeros({c.queries, c.keys}, at::kDouble);
  for (std::int64_t i = 0; i < c.queries; ++i) {
    for (std::int64_t j = 0; j < c.keys; ++j) {
      if (!sees(c.see, i, j)) mask[i][j].fill_(-kInfinity);
    }
  }
  return mask.to(device);
}

// [batch, heads, queries, keys], masked.
at::Tensor scores_written_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask) {
  const std::int64_t group = q.size(2) / k.size(2);
  const at::Tensor keys = k.repeat_interleave(group, 2).permute({1, 2, 3, 0});
  return at::matmul(q.permute({1, 2, 0, 3}), keys).mul(kScale).add(mask);
}

at::Tensor attention_written_out(const std::vector<at::Tensor>& in, const at::Tensor& mask) {
  const at::Tensor scores = scores_written_out(in[0], in[1], mask);
  const at::Tensor blind = mask.isneginf().all(1).unsqueeze(1);
  const at::Tensor weights = at::softmax(scores.masked_fill(blind, 0), -1).masked_fill(blind, 0);
  const at::Tensor values =
      in[2].repeat_interleave(in[0].size(2) / in[2].size(2), 2).permute({1, 2, 0, 3});
  return at::matmul(weights, values).permute({2, 0, 1, 3});
}

TEST(Attention, ForwardAndGradientsAreAutograds) {
  for (const at::Device device : test_devices()) {
    for (const AttentionCase& c : kCases) {
      const AttentionInputs in = inputs_of(c, at::kDouble, device);
      const at::Tensor mask = mask_of(c, device);
      Recorded reference(
          [&](const std::vector<at::Tensor>& x) { return attention_written_out(x, mask); },
          {in.q, in.k, in.v});
      const Attended found = attention(in.q, in.k, in.v, kScale, c.see);
      EXPECT_TRUE(close(found.out, reference.output(), 1e-10)) << c.fact;
      EXPECT_TRUE(close(found.lse, scores_written_out(in.q, in.k, mask).logsumexp(-1), 1e-10))
          << c.fact;
      EXPECT_TRUE(found.out.is_contiguous() && found.lse.is_contiguous()) << c.fact;

      const std::vector<at::Tensor> expected = reference.backward(in.dout);
      const AttentionGradients gradients =
          attention_backward(in.dout, in.q, in.k, in.v, found.out, found.lse, kScale, c.see);
      EXPECT_TRUE(
          close(together(gradients), together({expected[0], expected[1], expected[2]}), 1e-10))
          << c.fact;
    }
  }
}

TEST(Attention, SeesAnyIsAnyPair) {
  for (std::int64_t offset = -8; offset <= 12; ++offset) {
    for (const std::int64_t window : {0, 1, 2, 5}) {
      for (const bool causal : {true, false}) {
        const Visibility see{causal, window, 10 + offset, 10};
        bool any = false;
        for (std::int64_t i = 0; i < 4; ++i) {
          for (std::int64_t j = 0; j < 6; ++j) any = any || sees(see, i, j);
        }
        EXPECT_EQ(sees_any(see, 4, 6), any) << offset << ", window " << window;
      }
    }
  }
  EXPECT_FALSE(sees_any({.causal = false}, 4, 0));
}

TEST(Attention, PlainProductsAgreeWithFlash) {
  for (const AttentionCase& c : kCases) {
    // In each of these every query sees a key, as attention() promises its kernels.
    const std::int64_t ahead = std::max<std::int64_t>(0, c.keys - c.queries);
    const std::int64_t behind = std::max<std::int64_t>(0, c.queries - c.keys);
    const Band bands[] = {{c.queries, c.keys}, {c.queries, ahead}, {behind + 2, ahead}};
    for (const Band& band : bands) {
      const AttentionInputs in = inputs_of(c, at::kDouble, at::Device(at::kCPU));
      const Attended flash = cpu_flash(in.q, in.k, in.v, kScale, band);
      const Attended plain = plain_attention(in.q, in.k, in.v, kScale, band);
      EXPECT_TRUE(close(plain.out, flash.out, 1e-10)) << c.fact;
      EXPECT_TRUE(close(plain.lse, flash.lse, 1e-10)) << c.fact;
      const AttentionGradients a =
          plain_attention_backward(in.dout, in.q, in.k, in.v, flash.out, flash.lse, kScale, band);
      const AttentionGradients b =
          cpu_flash_backward(in.dout, in.q, in.k, in.v, flash.out, flash.lse, kScale, band);
      EXPECT_TRUE(close(together(a), together(b), 1e-10)) << c.fact;
    }
  }
}

// The GPU's kernel runs where there is one; what it is told is arithmetic, and is checked anywhere.
TEST(Attention, TheGpusWindowIsTheBand) {
  int bands = 0;
  const auto check = [&](std::int64_t queries, std::int64_t keys, const Band& band) {
    const auto inside = [&](std::int64_t i, std::int64_t j) {
      return i - band.before <= j && j <= i + band.after;
    };
    // Kernels only meet bands in which every query sees a key and every key is seen.
    std::int64_t seeing = 0;
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < queries; ++i) {
      bool any = false;
      for (std::int64_t j = 0; j < keys; ++j) any = any || inside(i, j);
      seeing += any ? 1 : 0;
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      bool any = false;
      for (std::int64_t i = 0; i < queries; ++i) any = any || inside(i, j);
      seen += any ? 1 : 0;
    }
    if (seeing < queries || seen < keys) return;
    ++bands;
    const CudaWindow window = cuda_window(band, queries, keys);
    EXPECT_GE(window.left.value_or(0), 0);  // a negative number would stand for no limit
    EXPECT_GE(window.right.value_or(0), 0);
    EXPECT_EQ(window.causal, !window.left && window.right == 0);
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::int64_t ahead = j - (i + keys - queries);
        const bool told =
            (!window.left || -ahead <= *window.left) && (!window.right || ahead <= *window.right);
        EXPECT_EQ(told, inside(i, j))
            << queries << " by " << keys << ", band " << band.before << " to " << band.after;
      }
    }
  };
  for (std::int64_t queries = 1; queries <= 5; ++queries) {
    for (std::int64_t keys = 1; keys <= 5; ++keys) {
      for (std::int64_t before = -5; before <= 6; ++before) {
        for (std::int64_t after = -5; after <= 6; ++after) check(queries, keys, {before, after});
      }
    }
  }
  EXPECT_GT(bands, 500);
}

TEST(Attention, ReadsHeadsInsideAFusedProjection) {
  for (const at::Device device : test_devices()) {
    const at::Tensor fused = random_tensor({7, 2, 8, 8}, 1, at::kDouble, device);
    const at::Tensor q = fused.narrow(2, 0, 4);
    const at::Tensor k = fused.narrow(2, 4, 2);
    const at::Tensor v = fused.narrow(2, 6, 2);
    const Attended inside = attention(q, k, v, kScale, {});
    const Attended dense = attention(q.contiguous(), k.contiguous(), v.contiguous(), kScale, {});
    EXPECT_TRUE(close(inside.out, dense.out, 1e-12));
    const AttentionGradients a =
        attention_backward(dense.out, q, k, v, inside.out, inside.lse, kScale, {});
    const AttentionGradients b =
        attention_backward(dense.out, q.contiguous(), k.contiguous(), v.contiguous(), dense.out,
                           dense.lse, kScale, {});
    EXPECT_TRUE(close(together(a), together(b), 1e-12));
  }
}

TEST(Attention, Bfloat16AndFloatAreNearDouble) {
  for (const at::Device device : test_devices()) {
    for (const AttentionCase& c : kCases) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const double tolerance = type == at::kFloat ? 1e-5 : 3e-2;
        const AttentionInputs in = inputs_of(c, type, device);
        const auto exact = [](const at::Tensor& x) { return x.to(at::kDouble); };
        const Attended found = attention(in.q, in.k, in.v, kScale, c.see);
        const Attended expected = attention(exact(in.q), exact(in.k), exact(in.v), kScale, c.see);
        EXPECT_EQ(found.out.scalar_type(), type);
        EXPECT_EQ(found.lse.scalar_type(), at::kFloat);
        EXPECT_TRUE(close(found.out, expected.out, tolerance)) << c.fact;
        EXPECT_TRUE(close(found.lse, expected.lse, tolerance)) << c.fact;
        const AttentionGradients a =
            attention_backward(in.dout, in.q, in.k, in.v, found.out, found.lse, kScale, c.see);
        const AttentionGradients b =
            attention_backward(exact(in.dout), exact(in.q), exact(in.k), exact(in.v), expected.out,
                               expected.lse, kScale, c.see);
        EXPECT_TRUE(close(together(a), together(b), tolerance)) << c.fact;
      }
    }
  }
}

}  // namespace
}  // namespace braid::ops
