#include "planner/simulate/traffic.h"

#include <algorithm>

#include "planner/core/error.h"

namespace braid {
namespace {

constexpr int kNone = -1;
constexpr Reach kReaches[] = {Reach::node, Reach::network};
constexpr int kDirections[] = {+1, -1};

std::size_t index(int i) { return static_cast<std::size_t>(i); }
int row_of(int direction) { return direction > 0 ? 0 : 1; }

const Port& port_of(const DevicePorts& ports, Reach reach, bool out) {
  if (reach == Reach::node) return out ? ports.node_out : ports.node_in;
  return out ? ports.network_out : ports.network_in;
}

// Classes may share a link; then it carries the ranks of both.
void add_port(Route& route, const Links& links, int device, Reach reach, bool out) {
  if (links.capacities.empty()) return;
  const Port& port = port_of(links.ports[index(device)], reach, out);
  if (port.link < 0) return;
  const auto found = std::ranges::find(route.links, port.link, &LinkUse::link);
  if (found == route.links.end()) {
    route.links.push_back({port.link, port.ranks});
  } else {
    found->ranks += port.ranks;
  }
}

// First and last stage, neighbours only between chunks, are taken to be as far as the farthest.
std::vector<Message> transfers_of(const EventInput& input) {
  std::vector<Message> list;
  for (int stage = 0; stage + 1 < input.shape.stages; ++stage) {
    const bool given = !input.streams.empty() && input.streams[index(stage)].transfer.has_value();
    list.push_back(given ? *input.streams[index(stage)].transfer
                         : Message{.moving = input.times[index(stage)].transfer});
  }
  if (!list.empty()) list.push_back(*std::ranges::max_element(list, {}, &Message::alone));
  return list;
}

}  // namespace

Traffic::Traffic(const EventInput& input, StreamClock& clock)
    : clock_(clock),
      stages_(input.shape.stages),
      classes_(std::max(1, static_cast<int>(input.replicas.size()))),
      shared_(!input.links.capacities.empty()),
      transfers_(transfers_of(input)),
      queues_(index(2 * stages_ * classes_)),
      streams_(index(stages_)),
      posted_(index(stages_ * classes_), 0),
      queued_(index(stages_ * classes_), 0) {
  build_routes(input);
}

void Traffic::build_routes(const EventInput& input) {
  for (const Reach reach : kReaches) {
    for (int stage = 0; stage < stages_; ++stage) {
      Route route;
      for (int device = stage; device < stages_ * classes_; device += stages_) {
        route.devices.push_back(device);
        add_port(route, input.links, device, reach, true);
        add_port(route, input.links, device, reach, false);
      }
      collective_routes_.push_back(std::move(route));
    }
    for (const int direction : kDirections) {
      for (int device = 0; device < stages_ * classes_; ++device) {
        const int to = neighbour(device, direction);
        Route route{.devices = {device, to}, .links = {}};
        add_port(route, input.links, device, reach, true);
        add_port(route, input.links, to, reach, false);
        transfer_routes_.push_back(std::move(route));
      }
    }
  }
}

int Traffic::neighbour(int device, int direction) const {
  return device / stages_ * stages_ + (device % stages_ + direction + stages_) % stages_;
}

const Route& Traffic::route_of(const Flight& flight) const {
  const bool far = flight.message->reach == Reach::network;
  if (flight.direction == 0) return collective_routes_[index((far ? stages_ : 0) + flight.device)];
  const int row = (far ? 2 : 0) + row_of(flight.direction);
  return transfer_routes_[index(row * stages_ * classes_ + flight.device)];
}

const Message& Traffic::transfer(int device, int direction) const {
  const int from = device % stages_, to = neighbour(device, direction) % stages_;
  const bool neighbours = to == from + direction;
  return transfers_[index(neighbours ? std::min(from, to) : stages_ - 1)];
}

Traffic::Queue& Traffic::queue_of(const Flight& flight) {
  return queues_[index(2 * flight.device + row_of(flight.direction))];
}

int Traffic::send(int device, int direction, int micro_batch) {
  const int id = static_cast<int>(flights_.size());
  flights_.push_back({.device = device,
                      .direction = direction,
                      .message = &transfer(device, direction),
                      .posted = clock_.now(),
                      .micro_batch = micro_batch});
  if (!shared_) {
    depart(id);
    return id;
  }
  Queue& queue = queue_of(flight(id));
  queue.flights.push_back(id);
  if (!queue.busy) start_head(queue);
  return id;
}

void Traffic::start_head(Queue& queue) {
  const int id = queue.flights.front();
  queue.busy = true;
  queued_[index(flight(id).device)] += clock_.now() - flight(id).posted;
  depart(id);
}

int Traffic::post(int device, const Message& message, CommKind kind, int micro_batch) {
  const int stage = device % stages_;
  Stream& stream = streams_[index(stage)];
  const std::size_t number = index(posted_[index(device)]++);
  if (number == stream.flights.size()) {
    stream.flights.push_back(static_cast<int>(flights_.size()));
    flights_.push_back(
        {.device = stage, .message = &message, .kind = kind, .micro_batch = micro_batch});
  }
  const int id = stream.flights[number];
  Flight& flight = flights_[index(id)];
  internal_check(flight.message == &message, "replicas ask for collectives in one order");
  if (++flight.posts == classes_) flight.posted = clock_.now();
  start_collective(stage);
  return id;
}

void Traffic::start_collective(int stage) {
  Stream& stream = streams_[index(stage)];
  if (stream.busy || stream.next == stream.flights.size()) return;
  const int id = stream.flights[stream.next];
  if (flight(id).posts < classes_) return;
  stream.busy = true;
  ++stream.next;
  depart(id);
}

void Traffic::depart(int id) {
  Flight& flight = flights_[index(id)];
  flight.started = clock_.now();
  const Message& message = *flight.message;
  const double seconds = message.moving.value();
  const int work = clock_.start(
      {.kind = flight.direction == 0 ? WorkKind::collective : WorkKind::transfer,
       .route = &route_of(flight),
       .latency = message.latency.value(),
       .seconds = seconds,
       .rate = seconds > 0 ? static_cast<double>(message.bytes.value()) / seconds : 0});
  if (index(work) >= flight_of_work_.size()) flight_of_work_.resize(index(work) + 1, kNone);
  flight_of_work_[index(work)] = id;
}

int Traffic::end(int work) {
  if (index(work) >= flight_of_work_.size() || flight_of_work_[index(work)] == kNone) return kNone;
  const int id = flight_of_work_[index(work)];
  flight_of_work_[index(work)] = kNone;
  Flight& flight = flights_[index(id)];
  flight.ended = true;
  if (flight.direction == 0) {
    streams_[index(flight.device)].busy = false;
    start_collective(flight.device);
  } else if (shared_) {
    Queue& queue = queue_of(flight);
    queue.flights.pop_front();
    queue.busy = false;
    if (!queue.flights.empty()) start_head(queue);
  }
  return id;
}

}  // namespace braid
