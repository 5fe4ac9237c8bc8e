#pragma once
// Messages under way between MPI processes. Only mpi.cpp includes this.
//
// Collectives are made of messages between two ranks, since MPI's own neither promise an order of
// summation nor say who is missing. Every message goes as a header, which the receiver compares
// with the one it would have sent, and then the data. Data is copied on both sides, so that user
// buffers are touched only by calls and waits, and a handle may be forgotten.

#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>

#include "runtime/comm/mpi.h"
#include "runtime/comm/operation.h"

namespace braid::comm::mpi {

using Clock = std::chrono::steady_clock;
using Staging = std::shared_ptr<std::byte[]>;

inline std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

inline Staging staging(std::int64_t bytes) {
  return std::make_shared_for_overwrite<std::byte[]>(to_size(bytes));
}

inline void copy_bytes(const void* from, void* to, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, to_size(bytes));
}

inline Staging copied(ConstBuffer buffer) {
  Staging copy = staging(buffer.bytes());
  copy_bytes(buffer.data, copy.get(), buffer.bytes());
  return copy;
}

inline void check_mpi(int status, std::string_view call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw CommError({.what = fmt::format("{}: {}", call, text.data()),
                   .where = "backend mpi",
                   .fix = "see what the other ranks report; this may be an echo"});
}

// An operation as it travels. Names are cut, and told apart by a hash.
struct Header {
  std::int32_t kind, type, reduction, root;
  std::int64_t number, count;
  std::int64_t block;  // elements of this message
  std::uint64_t hash;
  std::array<char, 80> name;
  std::array<char, 48> group;

  bool operator==(const Header&) const = default;
};

inline Header pack(const Operation& op, std::int64_t block) {
  Header header{.kind = static_cast<std::int32_t>(op.kind),
                .type = static_cast<std::int32_t>(op.type),
                .reduction = static_cast<std::int32_t>(op.reduction),
                .root = op.root,
                .number = op.number,
                .count = op.count,
                .block = block,
                .hash = 0xCBF2'9CE4'8422'2325U,
                .name = {},
                .group = {}};
  // FNV-1a: std::hash need not agree between machines.
  for (const char c : op.name + '\n' + op.group) {
    header.hash = (header.hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01B3U;
  }
  op.name.copy(header.name.data(), header.name.size() - 1);
  op.group.copy(header.group.data(), header.group.size() - 1);
  return header;
}

inline Operation unpack(const Header& header) {
  return {.kind = static_cast<OperationKind>(header.kind),
          .name = header.name.data(),
          .group = header.group.data(),
          .number = header.number,
          .type = static_cast<DataType>(header.type),
          .count = header.count,
          .reduction = static_cast<Reduction>(header.reduction),
          .root = header.root};
}

struct Settings {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
  int tag_limit = 0;
  std::chrono::milliseconds timeout{0};
  std::int64_t piece_bytes = kMpiPieceBytes;
};

// Tags tell apart the groups, and the uses of one group. Within one use all ranks send and receive
// in the order of numbers, and MPI keeps that order.
enum class Channel { collective, second_step, message, forming };
inline constexpr int kChannels = 4;

inline int tag_of(std::int64_t context, Channel channel) {
  return static_cast<int>(context * kChannels + static_cast<std::int64_t>(channel));
}

// An operation under way: messages, and what follows when they have come.
class Activity {
 public:
  Activity(const Settings& settings, Operation operation, std::int64_t context)
      : settings_(settings), operation_(std::move(operation)), context_(context) {}

  const Operation& operation() const { return operation_; }
  std::int64_t context() const { return context_; }

  void send(int peer, Channel channel, const Staging& keep, std::int64_t first_element,
            std::int64_t elements) {
    Message& message = post(outgoing_, peer, channel, keep, first_element, elements);
    message.sent = message.expected;
    transfer(message, [&](void* data, int bytes, MPI_Request* request) {
      return MPI_Isend(data, bytes, MPI_BYTE, peer, message.tag, settings_.comm, request);
    });
  }
  void receive(int peer, Channel channel, const Staging& keep, std::int64_t first_element,
               std::int64_t elements) {
    Message& message = post(incoming_, peer, channel, keep, first_element, elements);
    transfer(message, [&](void* data, int bytes, MPI_Request* request) {
      return MPI_Irecv(data, bytes, MPI_BYTE, peer, message.tag, settings_.comm, request);
    });
  }
  // What to do when all has come; it may send and receive anew.
  void then(std::function<void()> next) { next_ = std::move(next); }

  void advance(bool may_step) {
    bool all = true;
    for (Message& message : incoming_) all = arrived(message) && all;
    for (Message& message : outgoing_) test_all(message);
    if (all && next_ && may_step) std::exchange(next_, nullptr)();
  }
  bool has_step() const { return next_ != nullptr; }
  bool received() const { return !next_ && std::ranges::all_of(incoming_, is_done); }
  bool finished() const { return received() && std::ranges::all_of(outgoing_, is_done); }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    const auto& late = received() ? outgoing_ : incoming_;
    for (const Message& message : late) {
      if (!is_done(message)) ranks.push_back(message.peer);
    }
    return ranks;
  }

 private:
  struct Message {
    int peer = 0, tag = 0;
    Header expected{}, sent{};
    Staging keep;
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
    std::deque<MPI_Request> requests;  // the header's and those of the pieces, less what is done
    bool checked = false;
  };
  static bool is_done(const Message& message) { return message.requests.empty(); }

  Message& post(std::deque<Message>& list, int peer, Channel channel, const Staging& keep,
                std::int64_t first_element, std::int64_t elements) {
    const std::int64_t element = bytes_of(operation_.type);
    Message& message = list.emplace_back();
    message.peer = peer;
    message.tag = tag_of(context_, channel);
    message.expected = pack(operation_, elements);
    message.keep = keep;
    message.data = keep.get() + first_element * element;
    message.bytes = elements * element;
    return message;
  }

  void transfer(Message& message, const std::function<int(void*, int, MPI_Request*)>& start) const {
    check_mpi(start(&message.sent, sizeof(Header), &message.requests.emplace_back()), "a header");
    for (std::int64_t at = 0; at < message.bytes; at += settings_.piece_bytes) {
      const auto length = std::min(settings_.piece_bytes, message.bytes - at);
      check_mpi(
          start(message.data + at, static_cast<int>(length), &message.requests.emplace_back()),
          "a message");
    }
  }

  static void test_all(Message& message) {
    while (!message.requests.empty()) {
      int done = 0;
      check_mpi(MPI_Test(&message.requests.front(), &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0) return;
      message.requests.pop_front();
    }
  }

  // The header is looked at before the data, which need not fit where ranks disagree.
  bool arrived(Message& message) const {
    if (!message.checked) {
      int done = 0;
      check_mpi(MPI_Test(&message.requests.front(), &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0) return false;
      message.requests.pop_front();
      message.checked = true;
      check(message);
    }
    test_all(message);
    return is_done(message);
  }

  void check(const Message& message) const {
    if (message.sent == message.expected) return;
    const Operation other = unpack(message.sent);
    if (message.sent.hash == message.expected.hash && other == operation_) {
      throw CommError(block_disagreement(message.peer, message.sent.block, settings_.rank,
                                         message.expected.block, operation_));
    }
    throw CommError(disagreement(settings_.rank, operation_, message.peer, other));
  }

  const Settings& settings_;
  Operation operation_;
  std::int64_t context_;
  std::deque<Message> outgoing_, incoming_;  // their headers stay where they are
  std::function<void()> next_;
};

// Whatever is waited for, everything under way goes on: a rank that waits in another order must not
// hold up the rest. MPI has no thread of its own, so that while the rank computes one of ours looks
// after what is under way, where MPI allows more than one thread.
class Engine {
 public:
  Engine(Settings settings, bool threads) : settings_(settings) {
    if (threads) helper_ = std::jthread([this](const std::stop_token& stop) { help(stop); });
  }
  ~Engine() { stop_helping(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // From here on this thread alone calls MPI.
  void stop_helping() {
    if (!helper_.joinable()) return;
    helper_.request_stop();
    work_.notify_all();
    helper_.join();
  }

  const Settings& settings() const { return settings_; }

  // Between begin() and the last send() or receive() of an activity nobody else may move it.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> hold() { return std::unique_lock(mutex_); }

  std::shared_ptr<Activity> begin(Operation operation, std::int64_t context) {
    const auto held = hold();
    work_.notify_one();
    if (failure_) throw CommError(*failure_);
    return active_.emplace_back(
        std::make_shared<Activity>(settings_, std::move(operation), context));
  }

  void wait(const Activity& activity) {
    // A message that was copied is out of the sender's hands.
    const bool buffered = activity.operation().kind == OperationKind::message;
    wait_until([&] { return buffered ? activity.received() : activity.finished(); }, activity);
  }

  void drain() {
    const auto held = hold();
    while (!active_.empty()) {
      const auto last = active_.back();
      wait_until([&] { return last->finished(); }, *last);
      poll();
    }
  }

  // Contexts of groups that share a rank differ, as each rank's never goes back.
  std::int64_t next_context = 1;

 private:
  // Looks often while something moves, now and then while peers are still busy: every look takes
  // time from the threads that compute.
  void help(const std::stop_token& stop) {
    constexpr std::chrono::microseconds kPause(100);
    while (!stop.stop_requested()) {
      std::unique_lock held(mutex_);
      if (active_.empty() || failure_) {
        constexpr std::chrono::milliseconds kLongest(100);  // to notice a stop that nobody told
        work_.wait_for(held, kLongest);
        continue;
      }
      try {
        poll();
      } catch (const CommError&) {  // whoever waits next hears of it
      }
      held.unlock();
      std::this_thread::sleep_for(kPause);
    }
  }

  void poll() {
    if (failure_) throw CommError(*failure_);
    try {
      std::set<std::int64_t> behind;  // groups with an operation whose second step must go first
      for (const auto& activity : active_) {
        activity->advance(!behind.contains(activity->context()));
        if (activity->has_step()) behind.insert(activity->context());
      }
    } catch (const CommError& error) {
      failure_ = error.mistake();  // requests stay open: nothing can be begun or freed any more
      throw;
    }
    std::erase_if(active_, [](const auto& activity) { return activity->finished(); });
  }

  void wait_until(const std::function<bool()>& done, const Activity& activity) {
    constexpr int kSpins = 100, kYields = 1000;
    const auto deadline = Clock::now() + settings_.timeout;
    for (int round = 0;; ++round) {
      {
        const auto held = hold();
        poll();
        if (done()) return;
      }
      if (round < kSpins) continue;
      if (Clock::now() > deadline) {
        const auto held = hold();
        throw CommError(
            absence(settings_.rank, activity.operation(), activity.missing(), settings_.timeout));
      }
      if (round < kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    }
  }

  Settings settings_;
  std::recursive_mutex mutex_;
  std::condition_variable_any work_;
  std::list<std::shared_ptr<Activity>> active_;
  std::optional<Mistake> failure_;
  std::jthread helper_;
};

}  // namespace braid::comm::mpi
