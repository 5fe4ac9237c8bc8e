#pragma once
// How long each operator takes on the device, by name: for a benchmark that shows where a step
// goes. Where nobody collects, a range costs a test of a pointer.

#include <c10/core/Device.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "runtime/ops/device.h"

namespace braid::ops {

// One run of an operator.
struct TimedRange {
  std::string_view name;  // of static storage
  std::vector<std::int64_t> shape;
  double seconds = 0;
};

// Collects the ranges of this thread while it lives. One at a time.
class Timings {
 public:
  explicit Timings(c10::Device device);
  ~Timings();
  Timings(const Timings&) = delete;
  Timings& operator=(const Timings&) = delete;

  // Whether anybody collects them.
  static bool at_work() { return current() != nullptr; }
  // In the order of their beginning. Waits for the device.
  std::vector<TimedRange> ranges();

 private:
  friend class Timed;
  struct Open {
    std::string_view name;
    std::vector<std::int64_t> shape;
    Mark begin, end;
  };
  static Timings*& current();

  c10::Device device_;
  bool inside_ = false;
  std::vector<Open> open_;
};

// From here to the end of the scope. Of ranges inside each other only the outermost counts.
class Timed {
 public:
  explicit Timed(std::string_view name, std::initializer_list<std::int64_t> shape = {})
      : timings_(Timings::current()) {
    if (timings_ != nullptr) begin(name, shape);
  }
  ~Timed() {
    if (timings_ != nullptr) end();
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  void begin(std::string_view name, std::initializer_list<std::int64_t> shape);
  void end();

  Timings* timings_;
};

// The names that a benchmark runs again by themselves; a shape follows each.
inline constexpr std::string_view kForwardProduct = "linear";                // rows, out, in
inline constexpr std::string_view kInputProduct = "linear, input gradient";  // rows, out, in
inline constexpr std::string_view kWeightProduct = "linear, weight gradient";
// queries, batch, heads, kv_heads, head_dim, keys, whether causal
inline constexpr std::string_view kAttention = "attention";
inline constexpr std::string_view kAttentionBackward = "attention, gradient";

}  // namespace braid::ops
