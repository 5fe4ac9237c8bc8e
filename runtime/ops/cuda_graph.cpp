#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>

#include "planner/core/error.h"
#include "runtime/ops/graph.h"

namespace braid::ops {

struct Graph::Captured {
  at::cuda::CUDAGraph graph;
};

Graph::Graph() = default;
Graph::~Graph() = default;

std::string Graph::capture(c10::Device device, const std::function<void()>& body) {
  drop();
  c10::cuda::device_synchronize();
  // The default stream takes no part in captures.
  const c10::cuda::CUDAStreamGuard guard(
      c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
  auto made = std::make_unique<Captured>();
  try {
    made->graph.capture_begin();
    std::exception_ptr failed;
    try {
      body();
    } catch (...) {
      failed = std::current_exception();
    }
    // Also where body failed: the stream would stay in capture.
    made->graph.capture_end();
    if (failed) std::rethrow_exception(failed);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  captured_ = std::move(made);
  return {};
}

void Graph::replay() {
  internal_check(ready(), "a graph is replayed that nobody captured");
  captured_->graph.replay();
}

void Graph::drop() { captured_.reset(); }

}  // namespace braid::ops
