#include "planner/simulate/stream_clock.h"

#include <algorithm>
#include <utility>

#include "planner/core/error.h"

namespace braid {
namespace {

bool slows(const Overlap& overlap) { return overlap.compute != 1 || overlap.communication != 1; }

void erase(std::vector<int>& list, int value) { list.erase(std::ranges::find(list, value)); }

}  // namespace

StreamClock::StreamClock(int devices, const Factors& factors, std::vector<double> link_capacities)
    : factors_(factors),
      slows_(slows(factors.transfer) || slows(factors.collective)),
      fair_(std::move(link_capacities)),
      link_flows_(fair_.num_links()),
      devices_(static_cast<std::size_t>(devices)) {}

const Overlap& StreamClock::factors(WorkKind kind) const {
  return kind == WorkKind::transfer ? factors_.transfer : factors_.collective;
}

int StreamClock::start(const Work& work) {
  int id = static_cast<int>(works_.size());
  if (free_.empty()) {
    works_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Running& running = of(id);
  running = {.work = work, .left = work.seconds, .since = now_, .touched = 0};
  if (work.latency > 0) {
    forecast(id, now_ + work.latency);
  } else {
    move(id);
  }
  return id;
}

void StreamClock::move(int work) {
  Running& running = of(work);
  running.moving = true;
  running.since = now_;
  if (running.work.kind == WorkKind::compute) {
    Device& device = at(running.work.route->devices.front());
    internal_check(device.computing < 0, "a device computes one thing at a time");
    device.computing = work;
  } else {
    for (const int device : running.work.route->devices) at(device).flows.push_back(work);
    if (running.work.rate > 0)
      for (const LinkUse& use : running.work.route->links)
        link_flows_[static_cast<std::size_t>(use.link)].push_back(work);
  }
  started_.push_back(work);
  mark(running);
}

void StreamClock::end(int work) {
  Running& running = of(work);
  account(running);
  if (running.work.kind == WorkKind::compute) {
    at(running.work.route->devices.front()).computing = -1;
  } else {
    for (const int device : running.work.route->devices) erase(at(device).flows, work);
    if (running.work.rate > 0)
      for (const LinkUse& use : running.work.route->links)
        erase(link_flows_[static_cast<std::size_t>(use.link)], work);
  }
  mark(running);
  running.version = 0;
  free_.push_back(work);
}

// Whatever shares a device or a link with this work may change its pace.
void StreamClock::mark(const Running& running) {
  if (slows_) {
    for (const int device : running.work.route->devices) {
      if (at(device).dirty) continue;
      at(device).dirty = true;
      dirty_devices_.push_back(device);
    }
  }
  if (running.work.kind != WorkKind::compute && running.work.rate > 0)
    for (const LinkUse& use : running.work.route->links) dirty_links_.push_back(use.link);
}

std::optional<int> StreamClock::next() {
  while (true) {
    while (!ends_.empty() && of(ends_.top().work).version != ends_.top().version) ends_.pop();
    const bool later = ends_.empty() || ends_.top().time > now_;
    if (later && !(started_.empty() && dirty_devices_.empty() && dirty_links_.empty())) {
      settle();
      continue;
    }
    if (ends_.empty()) return std::nullopt;
    const End first = ends_.top();
    ends_.pop();
    now_ = first.time;
    if (!of(first.work).moving) {
      move(first.work);
      continue;
    }
    end(first.work);
    return first.work;
  }
}

void StreamClock::settle() {
  ++round_;
  touched_.clear();
  settle_devices();
  for (const int link : dirty_links_)
    for (const int flow : link_flows_[static_cast<std::size_t>(link)]) touch(flow);
  for (const int work : started_) {
    if (!of(work).moving || of(work).pace > 0) continue;  // ended at once, and the slot reused
    if (of(work).work.kind != WorkKind::compute) {
      touch(work);
    } else {
      set_pace(work, compute_pace(at(of(work).work.route->devices.front())));
    }
  }
  settle_flows();
  started_.clear();
  dirty_devices_.clear();
  dirty_links_.clear();
}

void StreamClock::settle_devices() {
  for (const int index : dirty_devices_) {
    Device& device = at(index);
    device.dirty = false;
    if (device.computing >= 0) set_pace(device.computing, compute_pace(device));
    for (const int flow : device.flows) touch(flow);
  }
}

void StreamClock::touch(int work) {
  if (of(work).touched == round_) return;
  of(work).touched = round_;
  touched_.push_back(work);
}

// What shares a link with a flow that changes may change too, and so on.
void StreamClock::settle_flows() {
  shared_.clear();
  sharers_.clear();
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    const int id = touched_[i];
    const double pace = flow_pace(of(id));
    if (of(id).undisturbed != pace) account(of(id));
    of(id).undisturbed = pace;
    const Work& work = of(id).work;
    if (work.rate <= 0 || work.route->links.empty()) {
      set_pace(id, pace);
      continue;
    }
    shared_.push_back({.most = pace * work.rate, .links = work.route->links});
    sharers_.push_back(id);
    for (const LinkUse& use : work.route->links)
      for (const int flow : link_flows_[static_cast<std::size_t>(use.link)]) touch(flow);
  }
  if (shared_.empty()) return;
  fair_.rates(shared_, rates_);
  for (std::size_t i = 0; i < sharers_.size(); ++i) {
    const Running& running = of(sharers_[i]);
    const bool whole = rates_[i] >= shared_[i].most;
    set_pace(sharers_[i], whole ? running.undisturbed : rates_[i] / running.work.rate);
  }
}

double StreamClock::compute_pace(const Device& device) {
  double factor = 1;
  for (const int flow : device.flows)
    factor = std::max(factor, factors(of(flow).work.kind).compute);
  return 1 / factor;
}

double StreamClock::flow_pace(const Running& running) const {
  const bool beside = std::ranges::any_of(running.work.route->devices,
                                          [&](int device) { return at(device).computing >= 0; });
  return beside ? 1 / factors(running.work.kind).communication : 1;
}

void StreamClock::set_pace(int work, double pace) {
  Running& running = of(work);
  if (running.pace == pace) return;
  account(running);
  running.pace = pace;
  forecast(work, now_ + running.left / pace);
}

// Brings progress and delays up to now.
void StreamClock::account(Running& running) {
  const double passed = now_ - running.since;
  running.since = now_;
  if (passed <= 0) return;
  running.left = std::max(0.0, running.left - passed * running.pace);
  for (const int device : running.work.route->devices) {
    Delays& delays = at(device).delays;
    if (running.work.kind == WorkKind::compute) {
      delays.compute += passed * (1 - running.pace);
    } else {
      delays.communication += passed * (1 - running.undisturbed);
      delays.links += passed * (running.undisturbed - running.pace);
    }
  }
}

void StreamClock::forecast(int work, double time) {
  of(work).version = ++version_;
  ends_.push({time, ++order_, work, version_});
}

}  // namespace braid
