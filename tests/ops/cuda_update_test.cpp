// The kernels of sums and of AdamW against fp64 on the CPU.

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "runtime/ops/fused.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/split_master.h"
#include "tests/ops/cuda_cases.h"

namespace braid::ops {
namespace {

class CudaUpdate : public KernelTest {
 protected:
  at::Tensor floats(at::IntArrayRef sizes, std::uint64_t seed) const {
    return random_tensor(sizes, seed, at::kFloat, device);
  }
};
BRAID_KERNEL_TYPES(CudaUpdate);

TEST_P(CudaUpdate, ABiasGradientIsTheSumOfTheRows) {
  for (const auto& [rows, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {5, 8}, {300, 33}, {1000, 264}, {67, 520}, {5000, 12}, {0, 8}}) {
    const at::Tensor dy = random({rows, width}, 1);
    const at::Tensor gradient = floats({width}, 2);
    const at::Tensor expected = exact(gradient).add(exact(dy).sum(0));
    ASSERT_TRUE(fused::column_sum({gradient}, dy));
    EXPECT_TRUE(close(gradient, expected, 2e-5)) << rows << "×" << width;
    ASSERT_TRUE(fused::column_sum({gradient, true}, dy));
    EXPECT_TRUE(close(gradient, exact(dy).sum(0), 2e-5)) << rows << "×" << width;
    // Sums in bf16 are rounded once, after being added up.
    const at::Tensor narrow = floats({width}, 3).to(at::kBFloat16);
    const at::Tensor added = exact(narrow).add(exact(dy).sum(0));
    ASSERT_TRUE(fused::column_sum({narrow}, dy));
    EXPECT_TRUE(close(narrow, added, 1.0 / 256)) << rows << "×" << width;
  }
}

TEST_P(CudaUpdate, SquaresOfAllPartsAreSummed) {
  std::vector<at::Tensor> parts;
  double expected = 0;
  const at::Tensor flat = random({5000}, 1);
  for (const auto& [begin, end] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 4096}, {4097, 4100}, {4100, 5000}}) {
    parts.push_back(flat.narrow(0, begin, end - begin));
    expected += exact(parts.back()).square().sum().item<double>();
  }
  const at::Tensor sum = fused::square_sum(parts);
  ASSERT_TRUE(sum.defined());
  EXPECT_NEAR(sum.item<double>(), expected, 1e-6 * expected);
}

struct Buffers {
  at::Tensor master, gradient, first, second;
};

// AdamW as it is written down (Loshchilov and Hutter, 2019), in fp64.
constexpr double kRate = 1e-2;
constexpr std::int64_t kStep = 3;
Buffers expected_step(const Buffers& b, const fused::Adamw& step, double scale) {
  const at::Tensor g = exact(b.gradient).mul(scale);
  const at::Tensor m = exact(b.first).mul(step.beta1).add(g.mul(1 - step.beta1));
  const at::Tensor v = exact(b.second).mul(step.beta2).add(g.square().mul(1 - step.beta2));
  const double t = static_cast<double>(kStep);
  const at::Tensor direction =
      m.div(1 - std::pow(step.beta1, t))
          .div(v.div(1 - std::pow(step.beta2, t)).sqrt().add(step.epsilon));
  at::Tensor w = exact(b.master);
  std::int64_t begin = 0;
  for (const kernels::DecayRun& run : step.runs) {
    w.narrow(0, begin, run.end - begin).mul_(1 - kRate * static_cast<double>(run.decay));
    begin = run.end;
  }
  return {w.sub(direction.mul(kRate)), g, m, v};
}

fused::Adamw step_of(const Buffers& b) {
  fused::Adamw step;
  step.weight = b.master;
  step.gradient = b.gradient;
  step.first = b.first;
  step.second = b.second;
  step.beta1 = 0.9;
  step.beta2 = 0.95;
  step.epsilon = 1e-8;
  step.pace = fused::adamw_pace(kRate, step.beta1, step.beta2, kStep).to(b.master.device());
  return step;
}

TEST_P(CudaUpdate, OnePassIsAdamwOnAWholeMasterAndOnASplitOne) {
  // Runs end inside packs; 40 of them take two calls.
  for (const int runs : {1, 3, 40}) {
    for (const std::int64_t offset : {0, 1}) {
      const std::int64_t elements = 997;
      const auto part = [&](const at::Tensor& whole) { return whole.narrow(0, offset, elements); };
      Buffers buffers{part(floats({998}, 1)), part(random({998}, 2)), part(floats({998}, 3)),
                      part(floats({998}, 4).abs())};
      fused::Adamw step = step_of(buffers);
      step.scale = at::full({1}, 0.5, buffers.master.options());
      for (int i = 1; i <= runs; ++i)
        step.runs.push_back({elements * i / runs, i % 2 == 0 ? 0.0F : 0.1F});
      const Buffers expected = expected_step(buffers, step, 0.5);

      fused::Adamw split = step;
      split.weight = part(random_tensor({998}, 5, at::kBFloat16, device));
      split.low = part(at::zeros({998}, split.weight.options().dtype(at::kShort)));
      split.first = buffers.first.clone();
      split.second = buffers.second.clone();
      split_master(buffers.master, split.weight, split.low);

      ASSERT_TRUE(fused::adamw(step));
      EXPECT_TRUE(close(buffers.master, expected.master, 2e-6)) << runs;
      EXPECT_TRUE(close(buffers.first, expected.first, 2e-6)) << runs;
      EXPECT_TRUE(close(buffers.second, expected.second, 2e-6)) << runs;

      ASSERT_TRUE(fused::adamw(split));
      EXPECT_TRUE(identical(join_master(split.weight, split.low), buffers.master)) << runs;
      EXPECT_TRUE(identical(split.second, buffers.second)) << runs;
    }
  }
}

TEST_P(CudaUpdate, AScaleThatIsNotFiniteChangesNothing) {
  for (const double scale :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const Buffers buffers{floats({40}, 1), random({40}, 2), floats({40}, 3), floats({40}, 4).abs()};
    fused::Adamw step = step_of(buffers);
    step.scale = at::full({1}, scale, buffers.master.options());
    step.runs = {{40, 0.1F}};
    const at::Tensor before = buffers.master.clone(), gradient = buffers.gradient.clone();
    ASSERT_TRUE(fused::adamw(step));
    EXPECT_TRUE(identical(buffers.master, before));
    EXPECT_TRUE(identical(buffers.gradient, gradient));
  }
}

}  // namespace
}  // namespace braid::ops
