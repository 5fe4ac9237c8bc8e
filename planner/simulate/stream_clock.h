#pragma once
// A clock for work that goes on side by side. A device computes one thing at a time and
// communicates beside it; both then slow down by given factors, and transfers share their links.
// Progress is piecewise linear: whenever something begins or ends, those that it touches change
// their pace.

#include <cstdint>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "planner/cost/overlap.h"
#include "planner/simulate/fair_share.h"

namespace braid {

enum class WorkKind { compute, transfer, collective };

// Which devices take part, and over which links it goes.
struct Route {
  std::vector<int> devices;
  std::vector<LinkUse> links;
};

// Seconds with the devices and links to itself.
struct Work {
  WorkKind kind = WorkKind::compute;
  const Route* route = nullptr;  // must outlive it
  double latency = 0;            // passes first, whatever else happens
  double seconds = 0;
  double rate = 0;  // bytes/s that each rank then sends; none: its links are never full
};

// By how much longer things took than alone.
struct Delays {
  double compute = 0;        // beside communication
  double communication = 0;  // beside compute
  double links = 0;          // sharing links
};

class StreamClock {
 public:
  struct Factors {
    Overlap transfer, collective;
  };
  StreamClock(int devices, const Factors& factors, std::vector<double> link_capacities);

  double now() const { return now_; }
  int start(const Work& work);
  // Moves on to the next end of a work and names it; nothing when all has ended. Works that start
  // and end at one moment change paces once, with all of them seen.
  std::optional<int> next();
  const Delays& delays(int device) const { return at(device).delays; }

 private:
  struct Running {
    Work work;
    double left = 0, pace = 0, since = 0;
    double undisturbed = 1;     // its pace if links had room
    std::uint64_t version = 0;  // of its end's forecast
    bool moving = false;        // latency has passed
    std::uint64_t touched = 0;
  };
  struct Device {
    int computing = -1;
    std::vector<int> flows;  // moving
    Delays delays;
    bool dirty = false;
  };
  struct End {
    double time;
    std::uint64_t order;
    int work;
    std::uint64_t version;
    bool operator>(const End& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  Device& at(int device) { return devices_[static_cast<std::size_t>(device)]; }
  const Device& at(int device) const { return devices_[static_cast<std::size_t>(device)]; }
  Running& of(int work) { return works_[static_cast<std::size_t>(work)]; }
  const Overlap& factors(WorkKind kind) const;
  void move(int work);
  void end(int work);
  void mark(const Running& running);
  void settle();
  void settle_devices();
  void settle_flows();
  void touch(int work);
  double compute_pace(const Device& device);
  double flow_pace(const Running& running) const;
  void set_pace(int work, double pace);
  void account(Running& running);
  void forecast(int work, double time);

  Factors factors_;
  bool slows_ = false;  // whether any factor differs from 1
  FairShare fair_;
  std::vector<std::vector<int>> link_flows_;
  std::vector<Device> devices_;
  std::vector<Running> works_;
  std::vector<int> free_;  // slots of works_
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  double now_ = 0;
  std::uint64_t order_ = 0, version_ = 0, round_ = 0;
  std::vector<int> dirty_devices_, dirty_links_, started_;
  std::vector<int> touched_;
  std::vector<Flow> shared_;
  std::vector<int> sharers_;
  std::vector<double> rates_;
};

}  // namespace braid
