#pragma once
// Ranks that work together. One small interface over three backends: threads of one process, MPI
// and NCCL. Nothing here knows tensors, so that it builds fast and sanitizers see all of it.
//
// Every operation is asynchronous: it returns a Handle, and the caller keeps its buffers alive and
// untouched until the handle was waited for. Every operation has a name and a number (how many the
// group has begun before it): ranks that disagree on either, or one that never comes, end all ranks
// with a CommError that names rank, operation and number.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/core/error.h"

namespace braid::comm {

enum class DataType { int64, fp64, fp32, bf16 };
std::int64_t bytes_of(DataType type);
std::string name_of(DataType type);

// A contiguous run of elements, in the memory of the backend's devices.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DataType type = DataType::fp32;
  std::int64_t bytes() const { return count * bytes_of(type); }
};
struct ConstBuffer {
  const void* data = nullptr;
  std::int64_t count = 0;
  DataType type = DataType::fp32;

  ConstBuffer() = default;
  ConstBuffer(const void* first, std::int64_t elements, DataType of)
      : data(first), count(elements), type(of) {}
  ConstBuffer(const Buffer& b) : data(b.data), count(b.count), type(b.type) {}
  std::int64_t bytes() const { return count * bytes_of(type); }
};

struct Outgoing {
  ConstBuffer buffer;
  int to = 0;
};
struct Incoming {
  Buffer buffer;
  int from = 0;
};

enum class Reduction { sum, max };

// Ranks disagree, or one is missing.
class CommError : public Error {
 public:
  using Error::Error;
};

// An operation under way.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;  // throws CommError
  // The device's streams that carry it out, as the driver's handles; none where the host does.
  virtual std::span<void* const> streams() const { return {}; }
};
class [[nodiscard]] Handle {
 public:
  Handle() = default;  // nothing to wait for
  explicit Handle(std::unique_ptr<Pending> pending) : pending_(std::move(pending)) {}
  // Once; later calls return at once.
  void wait() {
    if (auto pending = std::move(pending_)) pending->wait();
  }
  bool done() const { return pending_ == nullptr; }  // nothing to wait for any more
  std::span<void* const> streams() const {
    return pending_ ? pending_->streams() : std::span<void* const>{};
  }

 private:
  std::unique_ptr<Pending> pending_;
};

// Waits for all of them, in this order.
Handle join(std::vector<Handle> handles);

// What a group is formed for: a backend need not hold connections for anything else.
enum class GroupUse {
  everything,
  collectives,
  messages_up,  // to members of higher numbers alone
};

// Sums are taken in the order of ranks, in fp32 for bf16: every backend on CPUs gives the same
// bits.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // In place.
  Handle all_reduce(Buffer buffer, Reduction reduction, std::string_view name);
  // `in` holds size() blocks. `out` gets the sum of the rank's own, and may be its place in `in`.
  Handle reduce_scatter(ConstBuffer in, Buffer out, Reduction reduction, std::string_view name);
  // `out` gets every rank's `in`, in the order of ranks. `in` may be its own place in `out`.
  Handle all_gather(ConstBuffer in, Buffer out, std::string_view name);
  // Block i of `in`, `in_counts[i]` elements long, goes to rank i; block i of `out` came from it.
  Handle all_to_all(ConstBuffer in, std::span<const std::int64_t> in_counts, Buffer out,
                    std::span<const std::int64_t> out_counts, std::string_view name);
  Handle broadcast(Buffer buffer, int root, std::string_view name);
  // Messages between two ranks arrive in the order of sending, and both ranks give them the same
  // name. They count on their own channel, not with the collectives. On CPUs a send that was waited
  // for has left the buffer; that it arrived is not said.
  Handle send(ConstBuffer buffer, int to, std::string_view name);
  Handle receive(Buffer buffer, int from, std::string_view name);
  // Sends and receives that progress together. No rank need take part that has none. The only place
  // for messages to oneself: the k-th sent is the k-th received.
  Handle exchange(std::span<const Outgoing> out, std::span<const Incoming> in,
                  std::string_view name);
  void barrier(std::string_view name);

  // Memory in which collectives are at their fastest that make a whole of the ranks' parts or read
  // one; null where any will do. All ranks ask for it and let go of it in the same order, and each
  // collective finds all of them in the same piece. It may be used again, behind what the device
  // has been given to do, and goes when the last who holds a piece does.
  std::shared_ptr<void> allocate(std::int64_t bytes);
  // What this process's groups hold for it, in use or not.
  virtual std::int64_t allocated() const { return 0; }

  // The group of these ranks, in this order; collective over them alone, and it waits for them.
  std::unique_ptr<Group> subgroup(std::span<const int> members, std::string_view name,
                                  GroupUse use = GroupUse::everything);
  // Collective over all: ranks of one colour (≥ 0) form a group, ordered by key and then by rank. A
  // negative colour takes part in the call and gets nothing.
  std::unique_ptr<Group> split(int color, int key, std::string_view name);

 protected:
  Group(int rank, int size) : rank_(rank), size_(size) {}

  // Called with checked arguments, and never for a group of one.
  virtual Handle do_all_reduce(Buffer buffer, Reduction reduction, std::string_view name) = 0;
  virtual Handle do_reduce_scatter(ConstBuffer in, Buffer out, Reduction reduction,
                                   std::string_view name) = 0;
  virtual Handle do_all_gather(ConstBuffer in, Buffer out, std::string_view name) = 0;
  virtual Handle do_all_to_all(ConstBuffer in, std::span<const std::int64_t> in_counts, Buffer out,
                               std::span<const std::int64_t> out_counts, std::string_view name) = 0;
  virtual Handle do_broadcast(Buffer buffer, int root, std::string_view name) = 0;
  virtual Handle do_exchange(std::span<const Outgoing> out, std::span<const Incoming> in,
                             std::string_view name) = 0;
  virtual void do_barrier(std::string_view name) = 0;
  virtual std::unique_ptr<Group> do_subgroup(std::span<const int> members, std::string_view name,
                                             GroupUse use) = 0;
  // An all-gather of words in the host's memory. The default suits backends whose devices are
  // hosts.
  virtual void do_gather_words(std::span<const std::int64_t> in, std::span<std::int64_t> out,
                               std::string_view name);
  virtual std::shared_ptr<void> do_allocate(std::int64_t) { return nullptr; }
  // Within this rank's memory; the two may be the same place.
  virtual void do_copy(ConstBuffer from, Buffer to) = 0;

 private:
  void expect_collectives() const;

  int rank_;
  int size_;
  GroupUse use_ = GroupUse::everything;
};

}  // namespace braid::comm
