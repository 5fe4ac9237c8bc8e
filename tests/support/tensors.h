#pragma once
// Tensors of tests: made from a seed, compared so that NaN cannot hide.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>
#include <vector>

namespace braid {

// Standard normal values, the same on every device; for a reduced type, rounded.
inline at::Tensor random_tensor(at::IntArrayRef sizes, std::uint64_t seed,
                                at::ScalarType type = at::kDouble,
                                at::Device device = at::Device(at::kCPU)) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kDouble))
      .to(device, type);
}

// The largest |a - b| over the largest finite |b|. Equal infinities differ by nothing; NaN
// anywhere gives NaN, and tensors of different sizes are infinitely far apart.
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  if (a.numel() == 0) return 0;
  const at::Tensor left = a.to(at::kCPU, at::kDouble);
  const at::Tensor right = b.to(at::kCPU, at::kDouble);
  const at::Tensor zero = at::zeros_like(right);
  const at::Tensor apart = at::where(left.eq(right), zero, left.sub(right).abs());
  const at::Tensor size = at::where(right.isfinite(), right.abs(), zero);
  return apart.max().item().toDouble() /
         std::max(size.max().item().toDouble(), std::numeric_limits<double>::min());
}

// EXPECT_TRUE(close(a, b, 1e-10)): written so that NaN is not close to anything.
inline testing::AssertionResult close(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  if (!a.defined() || !b.defined()) {
    return testing::AssertionFailure() << "a tensor is undefined";
  }
  const double error = relative_error(a, b);
  if (!(error <= tolerance)) {
    std::ostringstream text;
    text << "relative error " << error << " > " << tolerance << ", sizes " << a.sizes() << " and "
         << b.sizes();
    return testing::AssertionFailure() << text.str();
  }
  return testing::AssertionSuccess();
}

// The same type, sizes and bits.
inline testing::AssertionResult identical(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) {
    return testing::AssertionFailure()
           << "types " << toString(a.scalar_type()) << " and " << toString(b.scalar_type());
  }
  if (!a.equal(b)) return close(a, b, -1);
  return testing::AssertionSuccess();
}

// Where tests of operators run: the CPU, and the GPU where there is one.
inline std::vector<at::Device> test_devices() {
  std::vector<at::Device> devices{at::Device(at::kCPU)};
  if (at::globalContext().hasCUDA()) devices.emplace_back(at::kCUDA, at::DeviceIndex{0});
  return devices;
}

}  // namespace braid
