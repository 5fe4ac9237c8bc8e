// Stands in for cuda_graph.cpp where CUDA is absent.

#include "planner/core/error.h"
#include "runtime/ops/graph.h"

namespace braid::ops {

struct Graph::Captured {};

Graph::Graph() = default;
Graph::~Graph() = default;

std::string Graph::capture(c10::Device, const std::function<void()>&) {
  return "this build is without CUDA";
}

void Graph::replay() { internal_check(ready(), "a graph is replayed that nobody captured"); }

void Graph::drop() { captured_.reset(); }

}  // namespace braid::ops
