// Stands in for cuda_host_copy.cpp where CUDA is absent.

#include <ATen/ops/empty.h>

#include "runtime/ops/host_copy_on_host.h"

namespace braid::ops {

at::Tensor host_memory(std::int64_t elements, at::ScalarType type, c10::Device) {
  return at::empty({elements}, at::TensorOptions(type));
}

struct HostCopy::State {
  CopyThread thread;
};

HostCopy::HostCopy(c10::Device) : state_(std::make_unique<State>()) {}
HostCopy::~HostCopy() { state_->thread.wait(); }

void HostCopy::start(std::vector<Pair> pairs) { state_->thread.start(std::move(pairs)); }
void HostCopy::hold_back_changes() { state_->thread.wait(); }
void HostCopy::wait() { state_->thread.wait(); }

}  // namespace braid::ops
