#pragma once
// What the tests of the kernels share.

#include <ATen/Context.h>

#include <optional>

#include "runtime/ops/cuda/kernels.h"
#include "tests/support/tensors.h"

namespace braid::ops {

// Where the kernels of this build run; none where there is nothing to run them on.
inline std::optional<at::Device> kernel_device() {
  switch (kernels::reach()) {
    case kernels::Reach::nothing:
      return std::nullopt;
    case kernels::Reach::gpu:
      if (!at::globalContext().hasCUDA()) return std::nullopt;
      return at::Device(at::kCUDA, 0);
    case kernels::Reach::host:
      return at::Device(at::kCPU);
  }
  return std::nullopt;
}

// A test of kernels in fp32 and bf16, skipped where they cannot run.
class KernelTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    const std::optional<at::Device> found = kernel_device();
    if (!found) GTEST_SKIP() << "no GPU, and the kernels are not emulated in this program";
    device = *found;
  }
  at::ScalarType type() const { return GetParam(); }
  // bf16 rounds results to 8 bits; sums of fp32 end at some 1e-6.
  double tolerance() const { return type() == at::kFloat ? 2e-5 : 1e-2; }
  at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed) const {
    return random_tensor(sizes, seed, type(), device);
  }

  at::Device device = at::kCPU;
};

// A test of what only a GPU can do, in bf16.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::optional<at::Device> found = kernel_device();
    if (!found || !found->is_cuda()) GTEST_SKIP() << "no GPU";
    device = *found;
  }
  at::Tensor random(at::IntArrayRef sizes, std::uint64_t seed) const {
    return random_tensor(sizes, seed, at::kBFloat16, device);
  }

  at::Device device = at::kCPU;
};

inline at::Tensor exact(const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); }

#define BRAID_KERNEL_TYPES(Suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(Types, Suite, testing::Values(at::kFloat, at::kBFloat16), \
                           [](const auto& type) { return toString(type.param); })

}  // namespace braid::ops
