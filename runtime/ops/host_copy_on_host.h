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
  // A copy of the future: this thread and the one that writes may both wait.
  void wait() const {
    if (copying_.valid()) copying_.get();
  }

 private:
  std::shared_future<void> copying_;
};

}  // namespace braid::ops
