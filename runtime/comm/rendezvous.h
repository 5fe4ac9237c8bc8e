#pragma once
// Where the threads of an in-process world meet. Who comes to a meeting leaves a copy of what he
// brings; who waits for it finds, once all have come, what all have brought.

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "runtime/comm/operation.h"

namespace braid::comm {

class Bytes {
 public:
  Bytes() = default;
  explicit Bytes(ConstBuffer buffer);
  const std::byte* data() const { return data_.get(); }
  std::byte* data() { return data_.get(); }

 private:
  std::unique_ptr<std::byte[]> data_;  // a vector would clear it first
};

struct Contribution {
  Operation operation;
  Bytes data = {};
  // Of an all-to-all: elements for each member, and from each.
  std::vector<std::int64_t> out_counts = {}, in_counts = {};
};

// One operation of some ranks, or one message between two.
struct Meeting {
  explicit Meeting(std::vector<int> of) : ranks(std::move(of)), brought(ranks.size()) {}

  const std::vector<int> ranks;  // of the world
  std::vector<std::unique_ptr<Contribution>> brought;
  std::size_t arrived = 0;
  std::optional<Mistake> mistake;
  std::condition_variable changed;
  std::once_flag reduced;  // whoever is first reduces for all, into the first contribution
};

// Meetings of one group. A message between members is told from collectives by its two places.
struct Hub {
  struct Key {
    int from = -1, to = -1;
    std::int64_t number = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Joining {
    std::shared_ptr<Hub> hub;
    std::size_t joined = 0;
  };

  Hub(std::vector<int> of, std::string called) : ranks(std::move(of)), name(std::move(called)) {}

  const std::vector<int> ranks;  // of the world
  const std::string name;
  std::map<Key, std::shared_ptr<Meeting>> open;  // that somebody has yet to come to
  std::map<std::pair<std::vector<int>, std::int64_t>, Joining> subgroups;
};

class World {
 public:
  World(int ranks, std::chrono::milliseconds timeout);

  const std::shared_ptr<Hub>& hub() const { return hub_; }

  // Never blocks. Throws where the world has failed, or where those who came before disagree.
  std::shared_ptr<Meeting> come(Hub& hub, Hub::Key key, std::size_t place, Contribution brings);
  // Blocks until all have come.
  void await(Meeting& meeting, std::size_t place);
  // The hub of a subgroup; `nth` counts the groups that this rank has formed of these members.
  std::shared_ptr<Hub> join(Hub& parent, const std::vector<int>& members, std::int64_t nth,
                            std::string_view name);

  // A rank will not come any more.
  void fail(int rank, std::exception_ptr cause, const std::string& why);
  void leave(int rank);
  std::exception_ptr cause() const { return cause_; }  // when all have left

 private:
  std::vector<int> missing(const Meeting& meeting) const;
  std::optional<int> gone(const Meeting& meeting) const;
  void wake_all();

  const std::chrono::milliseconds timeout_;
  std::shared_ptr<Hub> hub_;
  std::mutex mutex_;  // of everything below, and of all hubs and meetings
  std::multiset<std::condition_variable*> sleepers_;
  std::vector<bool> left_;
  std::optional<std::string> failure_;
  std::exception_ptr cause_;
};

}  // namespace braid::comm
