#include "planner/search/watch.h"

#include <algorithm>
#include <utility>

namespace braid {

std::string_view name_of(Ending ending) {
  switch (ending) {
    case Ending::complete:
      return "complete";
    case Ending::signal:
      return "signal";
    case Ending::limit:
      return "limit";
    case Ending::gap:
      return "gap";
  }
  return "";
}

Watch::Watch(Options options) : options_(std::move(options)), begin_(Clock::now()) {}

Ending Watch::ending() const {
  if (options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed))
    return Ending::signal;
  if (options_.time_limit &&
      std::chrono::duration<double>(Clock::now() - begin_).count() >= *options_.time_limit)
    return Ending::limit;
  return Ending::complete;
}

void Watch::enter(std::string_view phase) {
  {
    const std::scoped_lock lock(mutex_);
    if (frozen_) return;
    phase_ = phase;
  }
  report();
}

void Watch::found(Seconds iteration) {
  const std::scoped_lock lock(mutex_);
  if (frozen_) return;
  best_ = best_ ? std::min(*best_, iteration) : iteration;
}

void Watch::prove(Seconds bound) {
  const std::scoped_lock lock(mutex_);
  if (frozen_) return;
  bound_ = bound_ ? std::max(*bound_, bound) : bound;
}

void Watch::freeze() {
  const std::scoped_lock lock(mutex_);
  frozen_ = true;
}

void Watch::report_in_time() {
  constexpr std::chrono::milliseconds kPause(100);
  Clock::duration last = reported_;
  const Clock::duration now = Clock::now() - begin_;
  // The thread that comes first reports for all.
  if (now - last >= kPause && reported_.compare_exchange_strong(last, now)) report();
}

void Watch::report() {
  if (!options_.progress) return;
  const std::scoped_lock lock(mutex_);
  const std::chrono::duration<double> elapsed = Clock::now() - begin_;
  std::optional<double> gap;
  if (best_ && bound_ && *bound_ > Seconds()) gap = std::max(0.0, *best_ / *bound_ - 1);
  options_.progress({phase_, best_, gap, elapsed.count()});
}

}  // namespace braid
