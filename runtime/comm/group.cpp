#include "runtime/comm/group.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace braid::comm {

namespace {

std::int64_t sum_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

class AwaitAll final : public Pending {
 public:
  explicit AwaitAll(std::vector<Handle> handles) : handles_(std::move(handles)) {}
  void wait() override {
    for (Handle& handle : handles_) handle.wait();
  }

 private:
  std::vector<Handle> handles_;
};

bool none_negative(std::span<const std::int64_t> counts) {
  return std::ranges::all_of(counts, [](std::int64_t count) { return count >= 0; });
}

}  // namespace

std::int64_t bytes_of(DataType type) {
  switch (type) {
    case DataType::int64:
    case DataType::fp64:
      return 8;
    case DataType::fp32:
      return 4;
    case DataType::bf16:
      return 2;
  }
  return 0;
}

std::string name_of(DataType type) {
  switch (type) {
    case DataType::int64:
      return "int64";
    case DataType::fp64:
      return "fp64";
    case DataType::fp32:
      return "fp32";
    case DataType::bf16:
      return "bf16";
  }
  return {};
}

Handle join(std::vector<Handle> handles) {
  if (handles.empty()) return {};
  if (handles.size() == 1) return std::move(handles.front());
  return Handle(std::make_unique<AwaitAll>(std::move(handles)));
}

void Group::expect_collectives() const {
  internal_check(use_ != GroupUse::messages_up, "a group for messages has no collectives");
}

Handle Group::all_reduce(Buffer buffer, Reduction reduction, std::string_view name) {
  internal_check(buffer.count >= 0, "all_reduce: a count is negative");
  if (size_ == 1) return {};
  expect_collectives();
  return do_all_reduce(buffer, reduction, name);
}

Handle Group::reduce_scatter(ConstBuffer in, Buffer out, Reduction reduction,
                             std::string_view name) {
  internal_check(in.type == out.type, "reduce_scatter: the types differ");
  internal_check(out.count >= 0 && in.count == out.count * size_,
                 "reduce_scatter: the input must hold one block for each rank");
  if (size_ == 1) {
    do_copy(in, out);
    return {};
  }
  expect_collectives();
  return do_reduce_scatter(in, out, reduction, name);
}

Handle Group::all_gather(ConstBuffer in, Buffer out, std::string_view name) {
  internal_check(in.type == out.type, "all_gather: the types differ");
  internal_check(in.count >= 0 && out.count == in.count * size_,
                 "all_gather: the output must hold one block for each rank");
  if (size_ == 1) {
    do_copy(in, out);
    return {};
  }
  expect_collectives();
  return do_all_gather(in, out, name);
}

Handle Group::all_to_all(ConstBuffer in, std::span<const std::int64_t> in_counts, Buffer out,
                         std::span<const std::int64_t> out_counts, std::string_view name) {
  const auto ranks = static_cast<std::size_t>(size_);
  const auto self = static_cast<std::size_t>(rank_);
  internal_check(in.type == out.type, "all_to_all: the types differ");
  internal_check(in_counts.size() == ranks && out_counts.size() == ranks,
                 "all_to_all: there must be one count for each rank");
  internal_check(none_negative(in_counts) && none_negative(out_counts),
                 "all_to_all: a count is negative");
  internal_check(sum_of(in_counts) == in.count && sum_of(out_counts) == out.count,
                 "all_to_all: the counts must sum up to the buffer");
  internal_check(in_counts[self] == out_counts[self],
                 "all_to_all: a rank must receive from itself what it sends to itself");
  if (size_ == 1) {
    do_copy(in, out);
    return {};
  }
  expect_collectives();
  return do_all_to_all(in, in_counts, out, out_counts, name);
}

Handle Group::broadcast(Buffer buffer, int root, std::string_view name) {
  internal_check(buffer.count >= 0, "broadcast: a count is negative");
  internal_check(root >= 0 && root < size_, "broadcast: the root is not in the group");
  if (size_ == 1) return {};
  expect_collectives();
  return do_broadcast(buffer, root, name);
}

Handle Group::send(ConstBuffer buffer, int to, std::string_view name) {
  const Outgoing out{.buffer = buffer, .to = to};
  return exchange({&out, 1}, {}, name);
}

Handle Group::receive(Buffer buffer, int from, std::string_view name) {
  const Incoming in{.buffer = buffer, .from = from};
  return exchange({}, {&in, 1}, name);
}

Handle Group::exchange(std::span<const Outgoing> out, std::span<const Incoming> in,
                       std::string_view name) {
  std::vector<Outgoing> others_out, own_out;
  std::vector<Incoming> others_in, own_in;
  const auto sends = [&](bool upward) {
    return use_ == GroupUse::everything || (use_ == GroupUse::messages_up && upward);
  };
  for (const Outgoing& message : out) {
    internal_check(message.to >= 0 && message.to < size_, "a receiver is not in the group");
    internal_check(message.buffer.count >= 0, "a message's count is negative");
    internal_check(message.to == rank_ || sends(message.to > rank_),
                   "the group is not for this message");
    (message.to == rank_ ? own_out : others_out).push_back(message);
  }
  for (const Incoming& message : in) {
    internal_check(message.from >= 0 && message.from < size_, "a sender is not in the group");
    internal_check(message.buffer.count >= 0, "a message's count is negative");
    internal_check(message.from == rank_ || sends(message.from < rank_),
                   "the group is not for this message");
    (message.from == rank_ ? own_in : others_in).push_back(message);
  }
  internal_check(own_out.size() == own_in.size(),
                 "a message to oneself must be received in the same exchange");
  for (std::size_t i = 0; i < own_out.size(); ++i) {
    internal_check(own_out[i].buffer.type == own_in[i].buffer.type &&
                       own_out[i].buffer.count == own_in[i].buffer.count,
                   "a message to oneself must fit its receiver");
    do_copy(own_out[i].buffer, own_in[i].buffer);
  }
  if (others_out.empty() && others_in.empty()) return {};
  return do_exchange(others_out, others_in, name);
}

void Group::barrier(std::string_view name) {
  if (size_ == 1) return;
  expect_collectives();
  do_barrier(name);
}

std::shared_ptr<void> Group::allocate(std::int64_t bytes) {
  internal_check(bytes >= 0, "allocate: a size is negative");
  if (size_ == 1 || bytes == 0) return nullptr;
  expect_collectives();
  return do_allocate(bytes);
}

std::unique_ptr<Group> Group::subgroup(std::span<const int> members, std::string_view name,
                                       GroupUse use) {
  std::vector<int> sorted(members.begin(), members.end());
  std::ranges::sort(sorted);
  internal_check(!sorted.empty() && sorted.front() >= 0 && sorted.back() < size_,
                 "subgroup: a member is not in the group");
  internal_check(std::ranges::adjacent_find(sorted) == sorted.end(),
                 "subgroup: a member is named twice");
  internal_check(std::ranges::binary_search(sorted, rank_),
                 "subgroup: only members may form a group");
  std::unique_ptr<Group> group = do_subgroup(members, name, use);
  group->use_ = use;
  return group;
}

std::unique_ptr<Group> Group::split(int color, int key, std::string_view name) {
  constexpr auto kUnknown = std::numeric_limits<std::int64_t>::min();
  const auto self = static_cast<std::size_t>(rank_);
  std::vector<std::int64_t> pairs(2 * static_cast<std::size_t>(size_), kUnknown);
  pairs[2 * self] = color;
  pairs[2 * self + 1] = key;
  if (size_ > 1) do_gather_words(std::span(pairs).subspan(2 * self, 2), pairs, name);
  internal_check(std::ranges::find(pairs, kUnknown) == pairs.end(),
                 "split: the members of a dry group do not answer; form it with subgroup()");
  if (color < 0) return nullptr;

  std::vector<int> members;
  for (int rank = 0; rank < size_; ++rank) {
    if (pairs[2 * static_cast<std::size_t>(rank)] == color) members.push_back(rank);
  }
  std::ranges::stable_sort(members, {},
                           [&](int rank) { return pairs[2 * static_cast<std::size_t>(rank) + 1]; });
  return subgroup(members, name);
}

void Group::do_gather_words(std::span<const std::int64_t> in, std::span<std::int64_t> out,
                            std::string_view name) {
  do_all_gather({in.data(), std::ssize(in), DataType::int64},
                {out.data(), std::ssize(out), DataType::int64}, name)
      .wait();
}

}  // namespace braid::comm
