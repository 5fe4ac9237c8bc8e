#pragma once
// HostCopy's copies where the source is host memory itself: a thread makes them.

#include <ATen/core/Tensor.h>

#include <cstring>
#include <future>
#include <vector>

#include "runtime/ops/host_copy.h"

namespace braid::ops {

class CopyThread {
 public:
  void start(std::vector<HostCopy::Pair> pairs) {
    copying_ = std::async(std::launch::async, [pairs = std::move(pairs)] {
                 for (const HostCopy::Pair& pair : pairs)
                   std::memcpy(pair.to.data_ptr(), pair.from.const_data_ptr(), pair.from.nbytes());
               }).share();
  }
  // Two threads may wait at a time, each on a future of its own.
  void wait() const {
    const std::shared_future<void> copying = copying_;
    if (copying.valid()) copying.get();
  }

 private:
  std::shared_future<void> copying_;
};

}  // namespace braid::ops
