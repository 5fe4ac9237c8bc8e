#include "runtime/comm/rendezvous.h"

#include <fmt/core.h>

#include <cstring>
#include <numeric>

namespace braid::comm {

namespace {

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// What the newcomer at `place` says against what the others have said.
std::optional<Mistake> quarrel(const Meeting& meeting, std::size_t place) {
  const Contribution& mine = *meeting.brought[place];
  const int rank = meeting.ranks[place];
  for (std::size_t i = 0; i < meeting.brought.size(); ++i) {
    if (i == place || meeting.brought[i] == nullptr) continue;
    const Contribution& other = *meeting.brought[i];
    const int other_rank = meeting.ranks[i];
    if (mine.operation != other.operation) {
      return disagreement(rank, mine.operation, other_rank, other.operation);
    }
    if (mine.operation.kind != OperationKind::all_to_all) continue;
    if (mine.out_counts[i] != other.in_counts[place]) {
      return block_disagreement(rank, mine.out_counts[i], other_rank, other.in_counts[place],
                                mine.operation);
    }
    if (other.out_counts[place] != mine.in_counts[i]) {
      return block_disagreement(other_rank, other.out_counts[place], rank, mine.in_counts[i],
                                mine.operation);
    }
  }
  return {};
}

}  // namespace

Bytes::Bytes(ConstBuffer buffer) {
  if (buffer.count == 0) return;
  const auto bytes = static_cast<std::size_t>(buffer.bytes());
  data_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::memcpy(data_.get(), buffer.data, bytes);
}

World::World(int ranks, std::chrono::milliseconds timeout)
    : timeout_(timeout),
      hub_(std::make_shared<Hub>(first_ranks(ranks), "world")),
      left_(static_cast<std::size_t>(ranks)) {}

std::shared_ptr<Meeting> World::come(Hub& hub, Hub::Key key, std::size_t place,
                                     Contribution brings) {
  auto brought = std::make_unique<Contribution>(std::move(brings));
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<Meeting>& open = hub.open[key];
  if (open == nullptr) {
    std::vector<int> ranks = hub.ranks;
    if (key.from >= 0) {
      ranks = {hub.ranks[static_cast<std::size_t>(key.from)],
               hub.ranks[static_cast<std::size_t>(key.to)]};
    }
    open = std::make_shared<Meeting>(std::move(ranks));
  }
  std::shared_ptr<Meeting> meeting = open;
  meeting->brought[place] = std::move(brought);
  if (!meeting->mistake) meeting->mistake = quarrel(*meeting, place);
  ++meeting->arrived;
  const bool all = meeting->arrived == meeting->ranks.size();
  if (all) hub.open.erase(key);
  if (all || meeting->mistake) meeting->changed.notify_all();
  if (meeting->mistake) throw CommError(*meeting->mistake);
  if (failure_ && !all) {
    throw CommError({.what = *failure_,
                     .where = describe(meeting->brought[place]->operation),
                     .fix = "mend the cause; this rank only waited for the other"});
  }
  return meeting;
}

void World::await(Meeting& meeting, std::size_t place) {
  std::unique_lock lock(mutex_);
  const auto complete = [&] { return meeting.arrived == meeting.ranks.size(); };
  const auto settled = [&] {
    return meeting.mistake || complete() || failure_ || gone(meeting).has_value();
  };
  const auto sleeper = sleepers_.insert(&meeting.changed);
  const bool in_time = meeting.changed.wait_for(lock, timeout_, settled);
  sleepers_.erase(sleeper);

  if (meeting.mistake) throw CommError(*meeting.mistake);
  if (complete()) return;
  const int rank = meeting.ranks[place];
  const Operation& operation = meeting.brought[place]->operation;
  if (failure_) {
    throw CommError({.what = *failure_,
                     .where = fmt::format("rank {} waited for it in {}", rank, describe(operation)),
                     .fix = "mend the cause; this rank only waited for the other"});
  }
  if (!in_time) throw CommError(absence(rank, operation, missing(meeting), timeout_));
  throw CommError({.what = fmt::format("rank {} has ended, and rank {} waits for it in {}",
                                       gone(meeting).value_or(-1), rank, describe(operation)),
                   .where = fmt::format("group \"{}\"", operation.group),
                   .fix = "every rank of a group must call the same operations in the same order"});
}

std::shared_ptr<Hub> World::join(Hub& parent, const std::vector<int>& members, std::int64_t nth,
                                 std::string_view name) {
  const std::scoped_lock lock(mutex_);
  const auto key = std::pair(members, nth);
  Hub::Joining& joining = parent.subgroups[key];
  if (joining.hub == nullptr) {
    std::vector<int> ranks;
    ranks.reserve(members.size());
    for (const int member : members)
      ranks.push_back(parent.ranks[static_cast<std::size_t>(member)]);
    joining.hub = std::make_shared<Hub>(std::move(ranks), std::string(name));
  }
  std::shared_ptr<Hub> hub = joining.hub;
  if (++joining.joined == members.size()) parent.subgroups.erase(key);
  return hub;
}

void World::fail(int rank, std::exception_ptr cause, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  if (!failure_) {
    failure_ = fmt::format("rank {} has failed: {}", rank, why);
    cause_ = std::move(cause);
  }
  wake_all();
}

void World::leave(int rank) {
  const std::scoped_lock lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  wake_all();
}

std::vector<int> World::missing(const Meeting& meeting) const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < meeting.brought.size(); ++i) {
    if (meeting.brought[i] == nullptr) ranks.push_back(meeting.ranks[i]);
  }
  return ranks;
}

std::optional<int> World::gone(const Meeting& meeting) const {
  for (const int rank : missing(meeting)) {
    if (left_[static_cast<std::size_t>(rank)]) return rank;
  }
  return {};
}

void World::wake_all() {
  for (std::condition_variable* sleeper : sleepers_) sleeper->notify_all();
}

}  // namespace braid::comm
