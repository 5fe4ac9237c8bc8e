#pragma once
// A stretch of work that a GPU was shown once and does again at the price of one launch.

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>

namespace braid::ops {

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Shows it what `body` gives to the current stream of `device`; nothing of it runs. The memory
  // that body takes stays with the graph. Says why it could not be done; empty: it is ready.
  std::string capture(c10::Device device, const std::function<void()>& body);
  bool ready() const { return captured_ != nullptr; }
  void replay();
  void drop();

 private:
  struct Captured;
  std::unique_ptr<Captured> captured_;
};

}  // namespace braid::ops
