// Products through cuBLASLt and attention through cuDNN, which need a GPU, against fp64.

#include <ATen/ops/zeros.h>

#include "runtime/ops/attention.h"
#include "runtime/ops/attention_kernels.h"
#include "runtime/ops/cuda/gemm.h"
#include "runtime/ops/device.h"
#include "runtime/ops/fallback.h"
#include "runtime/ops/fused.h"
#include "runtime/ops/linear.h"
#include "tests/ops/cuda_cases.h"

namespace braid::ops {
namespace {

class CudaProduct : public GpuTest {};

struct Product {
  std::int64_t rows, in, out;
};
constexpr Product kProducts[] = {{64, 32, 48}, {1, 8, 8}, {333, 40, 1000}, {17, 24, 136}};

TEST_F(CudaProduct, WeightGradientsAreAddedInFp32) {
  for (const Product& p : kProducts) {
    const at::Tensor dy = random({p.rows, p.out}, 1), x = random({p.rows, p.in}, 2);
    const at::Tensor gradient = random_tensor({p.out, p.in}, 3, at::kFloat, device);
    const at::Tensor expected = exact(gradient).addmm(exact(dy).t(), exact(x));
    ASSERT_TRUE(fused::add_product({gradient}, dy, x)) << p.rows << " " << p.in << " " << p.out;
    EXPECT_TRUE(close(gradient, expected, 1e-5)) << p.rows << " " << p.in << " " << p.out;
    ASSERT_TRUE(fused::add_product({gradient, /*fresh=*/true}, dy, x));
    EXPECT_TRUE(close(gradient, exact(dy).t().mm(exact(x)), 1e-5)) << p.rows;
    // A part of a flat buffer, which may begin anywhere, and columns of a wider matrix.
    const at::Tensor flat = at::zeros({p.out * p.in + 1}, gradient.options());
    const at::Tensor part = flat.narrow(0, 1, p.out * p.in).view({p.out, p.in});
    const at::Tensor wide = random({p.rows, p.out + 8}, 4).narrow(1, 8, p.out);
    add_weight_gradient({part}, wide, x);
    EXPECT_TRUE(close(part, exact(wide).t().mm(exact(x)), 1e-5)) << p.rows;
  }
}

TEST_F(CudaProduct, WeightGradientsMayBeKeptInBf16) {
  for (const Product& p : kProducts) {
    const at::Tensor dy = random({p.rows, p.out}, 1), x = random({p.rows, p.in}, 2);
    const at::Tensor gradient = random({p.out, p.in}, 3);
    const at::Tensor expected = exact(gradient).addmm(exact(dy).t(), exact(x));
    ASSERT_TRUE(fused::add_product({gradient}, dy, x)) << p.rows << " " << p.in << " " << p.out;
    EXPECT_TRUE(close(gradient, expected, 1e-2)) << p.rows << " " << p.in << " " << p.out;
    add_weight_gradient({gradient, /*fresh=*/true}, dy, x);
    EXPECT_TRUE(close(gradient, exact(dy).t().mm(exact(x)), 1e-2)) << p.rows;
  }
}

TEST_F(CudaProduct, BothDirectionsOfALinearLayer) {
  for (const Product& p : kProducts) {
    const at::Tensor x = random({p.rows, p.in}, 1), weight = random({p.out, p.in}, 2);
    const at::Tensor bias = random({p.out}, 3), dy = random({p.rows, p.out}, 4);
    const auto y = fused::linear(x, weight, bias);
    const auto dx = fused::linear_input_gradient(dy, weight);
    ASSERT_TRUE(y && dx) << p.rows << " " << p.in << " " << p.out;
    EXPECT_TRUE(close(*y, exact(x).mm(exact(weight).t()).add(exact(bias)), 1e-2)) << p.rows;
    EXPECT_TRUE(close(*dx, exact(dy).mm(exact(weight)), 1e-2)) << p.rows;
    at::Tensor sum;
    add_product(sum, x, weight.t());
    add_product(sum, x, weight.t());
    EXPECT_TRUE(close(sum, exact(x).mm(exact(weight).t()).mul(2), 1e-5)) << p.rows;
  }
}

TEST_F(CudaProduct, GroupsOfRowsTakeOneLaunch) {
  const at::Tensor x = random({3, 2 * 40, 2, 32}, 1).narrow(1, 40, 40);
  const at::Tensor weight = random({24, 32}, 2), bias = random({24}, 3);
  const at::Tensor y = random({3, 2 * 40, 2, 24}, 4);
  const at::Tensor rest = y.narrow(1, 40, 40).clone();
  const RowGroups rows = row_groups(y.narrow(1, 0, 40), x);
  ASSERT_TRUE(fused::linear_into(rows, weight, bias));
  EXPECT_TRUE(close(y.narrow(1, 0, 40), exact(x).matmul(exact(weight).t()).add(exact(bias)), 1e-2));
  EXPECT_TRUE(identical(y.narrow(1, 40, 40), rest));
}

// Where ranks share the GPU; the hazard itself needs them.
TEST_F(CudaProduct, LooseProductsAreTheSame) {
  for (const Product& p : {Product{512, 1024, 2048}, Product{333, 40, 1000}}) {
    const at::Tensor x = random({p.rows, p.in}, 1), weight = random({p.out, p.in}, 2);
    const at::Tensor y = at::zeros({p.rows, p.out}, x.options());
    const at::Tensor workspace = at::zeros({1 << 20}, x.options().dtype(at::kByte));
    kernels::Gemm call;
    call.left = {x.data_ptr(), p.in};
    call.right = {weight.data_ptr(), p.in, /*turned=*/true};
    call.rows = p.rows;
    call.columns = p.out;
    call.inner = p.in;
    call.out = y.data_ptr();
    call.loose = true;
    call.workspace = workspace.data_ptr();
    call.workspace_size = static_cast<std::size_t>(workspace.numel());
    EXPECT_EQ(kernels::gemm(call, current_stream(device)), "") << p.rows;
    EXPECT_TRUE(close(y, exact(x).mm(exact(weight).t()), 1e-2)) << p.rows;
  }
}

TEST_F(CudaProduct, ResidualAndBiasAreAddedByTheProduct) {
  for (const Product& p : kProducts) {
    const at::Tensor x = random({p.rows, p.in}, 1), weight = random({p.out, p.in}, 2);
    const at::Tensor residual = random({p.rows, p.out}, 3), bias = random({p.out}, 4);
    for (const at::Tensor& b : {at::Tensor(), bias, random({p.out}, 5)}) {
      const auto y = fused::linear_onto(residual, x, weight, b);
      ASSERT_TRUE(y) << p.rows << " " << p.in << " " << p.out;
      EXPECT_TRUE(close(*y,
                        linear_onto(exact(residual), exact(x), exact(weight),
                                    b.defined() ? exact(b) : at::Tensor()),
                        1e-2))
          << p.rows << " " << p.in << " " << p.out;
    }
  }
}

TEST_F(CudaProduct, CudnnAttendsAsFlashDoesOnPackedHeads) {
  if (compute_capability(device) < 90) GTEST_SKIP() << "not the faster one before Hopper";
  struct Shape {
    std::int64_t tokens, batch, heads, kv_heads, head_dim;
    bool causal;
  };
  for (const Shape& s : {Shape{128, 2, 4, 4, 64, true}, Shape{200, 3, 8, 2, 128, true},
                         Shape{64, 1, 4, 1, 64, false}}) {
    const at::Tensor qkv = random({s.tokens, s.batch, s.heads + 2 * s.kv_heads, s.head_dim}, 1);
    const at::Tensor q = qkv.narrow(2, 0, s.heads), k = qkv.narrow(2, s.heads, s.kv_heads);
    const at::Tensor v = qkv.narrow(2, s.heads + s.kv_heads, s.kv_heads);
    const at::Tensor dout = random({s.tokens, s.batch, s.heads, s.head_dim}, 2);
    const Band band{s.tokens, s.causal ? 0 : s.tokens};
    constexpr double kScale = 0.125;
    ASSERT_TRUE(cudnn_takes(q, k, band));
    const auto made = cudnn_attention(q, k, v, kScale, band);
    ASSERT_TRUE(made) << "cuDNN refused: the note on stderr says why";
    const Attended flash = cuda_flash(q, k, v, kScale, band);
    EXPECT_TRUE(close(made->out, flash.out, 1e-2));
    EXPECT_TRUE(close(made->lse, flash.lse, 1e-4));
    const auto found = cudnn_attention_backward(dout, q, k, v, made->out, made->lse, kScale, band);
    ASSERT_TRUE(found) << "cuDNN refused: the note on stderr says why";
    const AttentionGradients expected =
        plain_attention_backward(exact(dout), exact(q), exact(k), exact(v), exact(flash.out),
                                 exact(flash.lse), kScale, band);
    EXPECT_TRUE(close(found->dq, expected.dq, 2e-2));
    EXPECT_TRUE(close(found->dk, expected.dk, 2e-2));
    EXPECT_TRUE(close(found->dv, expected.dv, 2e-2));
  }
}

TEST(Fallback, IsToldOnce) {
  std::vector<std::string> lines;
  const FallbackListener before =
      on_fallback([&](const std::string& line) { lines.push_back(line); });
  note_fallback("an operation", "a reason");
  note_fallback("an operation", "a reason");
  note_fallback("an operation", "another reason");
  on_fallback(before);
  EXPECT_EQ(lines,
            (std::vector<std::string>{"an operation: a reason", "an operation: another reason"}));
}

}  // namespace
}  // namespace braid::ops
