#pragma once

#include <stdexcept>
#include <string>

namespace braid::measure {

// Thrown on all ranks where they agreed to end before the work was done, because a signal asked
// one of them.
class Stopped : public std::runtime_error {
 public:
  // `kept`: what the run leaves behind, a sentence; empty: nothing.
  Stopped(int signal, const std::string& kept) : std::runtime_error(kept), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

}  // namespace braid::measure
