#pragma once
// What is under way in an event simulation: messages between stages and the collectives of each
// stage, on the routes that the links give them and in the order that their streams keep.

#include <deque>
#include <vector>

#include "planner/simulate/event_simulator.h"
#include "planner/simulate/stream_clock.h"

namespace braid {

// Devices are numbered by class, then stage.
class Traffic {
 public:
  struct Flight {
    int device = 0;     // sender of a transfer; stage of a collective
    int direction = 0;  // of a transfer: +1 or -1; a collective has none
    const Message* message = nullptr;
    double posted = 0;  // by the last device that takes part
    double started = 0;
    bool ended = false;
    int posts = 0;  // devices that have asked for a collective
    CommKind kind = CommKind::transfer;
    int micro_batch = -1;
  };

  Traffic(const EventInput& input, StreamClock& clock);

  // Towards the next (+1) or previous (-1) stage. Without shared links it leaves at once; with
  // them it follows those that the device has sent in this direction before.
  int send(int device, int direction, int micro_batch);
  // A device's next collective. It starts when all classes have asked for it and its predecessor
  // has ended.
  int post(int device, const Message& message, CommKind kind, int micro_batch);
  // Which flight ended with this work of the clock; -1 for none of these.
  int end(int work);

  const Flight& flight(int id) const { return flights_[static_cast<std::size_t>(id)]; }
  int neighbour(int device, int direction) const;
  // Seconds that a device's messages stood in its queues.
  double queued(int device) const { return queued_[static_cast<std::size_t>(device)]; }

 private:
  struct Queue {
    std::deque<int> flights;  // the first one is under way
    bool busy = false;
  };
  struct Stream {
    std::vector<int> flights;  // in the order of posting
    std::size_t next = 0;      // to start
    bool busy = false;
  };

  void build_routes(const EventInput& input);
  const Message& transfer(int device, int direction) const;
  Queue& queue_of(const Flight& flight);
  void depart(int id);
  void start_head(Queue& queue);
  void start_collective(int stage);
  const Route& route_of(const Flight& flight) const;

  StreamClock& clock_;
  int stages_, classes_;
  bool shared_;                     // links, so that messages queue
  std::vector<Message> transfers_;  // by boundary; the last one wraps around
  std::vector<Route> transfer_routes_, collective_routes_;
  std::vector<Flight> flights_;
  std::vector<int> flight_of_work_;
  std::vector<Queue> queues_;    // by device and direction
  std::vector<Stream> streams_;  // by stage
  std::vector<int> posted_;      // collectives so far, by device
  std::vector<double> queued_;   // by device
};

}  // namespace braid
