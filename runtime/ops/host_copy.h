#pragma once
// Copies of a device's memory in the host's, made while the device goes on computing.

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace braid::ops {

// Flat host memory of `elements`, pinned for a GPU so that its copy engines reach it.
at::Tensor host_memory(std::int64_t elements, at::ScalarType type, c10::Device device);

class HostCopy {
 public:
  struct Pair {
    at::Tensor from, to;  // contiguous, of equal types and sizes; `to` is host_memory()
  };

  explicit HostCopy(c10::Device device);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  // Begins to copy what the work given to the current stream so far leaves in the sources. No other
  // copies may be under way.
  void start(std::vector<Pair> pairs);
  // What is given to the current stream from here on runs when the copies are done, so that it may
  // change the sources. In a captured graph this holds for every replay. A CPU waits.
  void hold_back_changes();
  // Returns when all copies are there; throws what stopped them. From any one thread.
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::ops
