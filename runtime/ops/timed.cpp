#include "runtime/ops/timed.h"

#include "planner/core/error.h"

namespace braid::ops {

Timings*& Timings::current() {
  thread_local Timings* one = nullptr;
  return one;
}

Timings::Timings(c10::Device device) : device_(device) {
  internal_check(current() == nullptr, "one collection of timings at a time");
  current() = this;
}

Timings::~Timings() { current() = nullptr; }

std::vector<TimedRange> Timings::ranges() {
  synchronise(device_);
  std::vector<TimedRange> found;
  found.reserve(open_.size());
  for (const Open& range : open_)
    found.push_back({range.name, range.shape, range.end.since(range.begin)});
  return found;
}

void Timed::begin(std::string_view name, std::initializer_list<std::int64_t> shape) {
  if (timings_->inside_) {
    timings_ = nullptr;
    return;
  }
  timings_->inside_ = true;
  timings_->open_.push_back({name, shape, Mark::now(timings_->device_), {}});
}

void Timed::end() {
  timings_->inside_ = false;
  timings_->open_.back().end = Mark::now(timings_->device_);
}

}  // namespace braid::ops
