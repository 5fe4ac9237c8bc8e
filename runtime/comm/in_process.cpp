#include "runtime/comm/in_process.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "runtime/comm/pooled_memory.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/rendezvous.h"

namespace braid::comm {

namespace {

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

void copy_bytes(const std::byte* from, void* to, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, to_size(bytes));
}

// Forgetting one is harmless: the meeting goes when the last who holds it does.
class AwaitMeeting final : public Pending {
 public:
  using Finish = std::function<void(Meeting&)>;
  AwaitMeeting(std::shared_ptr<World> world, std::shared_ptr<Meeting> meeting, std::size_t place,
               Finish finish)
      : world_(std::move(world)),
        meeting_(std::move(meeting)),
        place_(place),
        finish_(std::move(finish)) {}

  void wait() override {
    world_->await(*meeting_, place_);
    if (finish_) finish_(*meeting_);
  }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<Meeting> meeting_;
  std::size_t place_;
  Finish finish_;
};

std::vector<const std::byte*> inputs_of(const Meeting& meeting, std::int64_t offset_bytes) {
  std::vector<const std::byte*> inputs;
  inputs.reserve(meeting.brought.size());
  for (const auto& one : meeting.brought) inputs.push_back(one->data.data() + offset_bytes);
  return inputs;
}

// Collectives here are no faster in it. Ranks that do not ask for it in the same order are found
// out, as no other backend can: each says which piece it is in.
class HostMemory final : public PooledMemory {
 private:
  void* make(braid::Bytes size) override {
    owned_.push_back(std::make_unique<std::byte[]>(to_size(size.value())));
    return owned_.back().get();
  }

  std::vector<std::unique_ptr<std::byte[]>> owned_;
};

class InProcessGroup final : public Group {
 public:
  InProcessGroup(std::shared_ptr<World> world, std::shared_ptr<Hub> hub, int rank)
      : Group(rank, static_cast<int>(hub->ranks.size())),
        world_(std::move(world)),
        hub_(std::move(hub)),
        sent_(to_size(size())),
        received_(to_size(size())) {}

 protected:
  Handle do_all_reduce(Buffer buffer, Reduction reduction, std::string_view name) override {
    return collective({.operation = describe_as(OperationKind::all_reduce, name, buffer, reduction),
                       .data = Bytes(buffer)},
                      [buffer, reduction](Meeting& meeting) {
                        std::byte* sums = meeting.brought.front()->data.data();
                        std::call_once(meeting.reduced, [&] {
                          reduce_in_order(reduction, buffer.type, inputs_of(meeting, 0), sums,
                                          buffer.count);
                        });
                        copy_bytes(sums, buffer.data, buffer.bytes());
                      });
  }

  Handle do_reduce_scatter(ConstBuffer in, Buffer out, Reduction reduction,
                           std::string_view name) override {
    return collective_on(
        {.operation = describe_as(OperationKind::reduce_scatter, name, out, reduction),
         .data = Bytes(in)},
        in.data, [out, reduction, offset = rank() * out.bytes()](Meeting& meeting) {
          reduce_in_order(reduction, out.type, inputs_of(meeting, offset),
                          static_cast<std::byte*>(out.data), out.count);
        });
  }

  Handle do_all_gather(ConstBuffer in, Buffer out, std::string_view name) override {
    return collective_on(
        {.operation = describe_as(OperationKind::all_gather, name, in), .data = Bytes(in)},
        out.data, [out, bytes = in.bytes()](Meeting& meeting) {
          auto* to = static_cast<std::byte*>(out.data);
          for (const auto& one : meeting.brought) {
            copy_bytes(one->data.data(), to, bytes);
            to += bytes;
          }
        });
  }

  Handle do_all_to_all(ConstBuffer in, std::span<const std::int64_t> in_counts, Buffer out,
                       std::span<const std::int64_t> out_counts, std::string_view name) override {
    const ConstBuffer blocks_differ(nullptr, 0, in.type);
    return collective({.operation = describe_as(OperationKind::all_to_all, name, blocks_differ),
                       .data = Bytes(in),
                       .out_counts = {in_counts.begin(), in_counts.end()},
                       .in_counts = {out_counts.begin(), out_counts.end()}},
                      [out, self = to_size(rank()), element = bytes_of(in.type)](Meeting& meeting) {
                        auto* to = static_cast<std::byte*>(out.data);
                        for (const auto& one : meeting.brought) {
                          std::int64_t before = 0;
                          for (std::size_t i = 0; i < self; ++i) before += one->out_counts[i];
                          const std::int64_t bytes = one->out_counts[self] * element;
                          copy_bytes(one->data.data() + before * element, to, bytes);
                          to += bytes;
                        }
                      });
  }

  Handle do_broadcast(Buffer buffer, int root, std::string_view name) override {
    Operation operation = describe_as(OperationKind::broadcast, name, buffer);
    operation.root = root;
    const bool gives = rank() == root;
    return collective({.operation = std::move(operation), .data = gives ? Bytes(buffer) : Bytes()},
                      [buffer, root, gives](Meeting& meeting) {
                        if (gives) return;
                        const auto& given = meeting.brought[to_size(root)];
                        copy_bytes(given->data.data(), buffer.data, buffer.bytes());
                      });
  }

  Handle do_exchange(std::span<const Outgoing> out, std::span<const Incoming> in,
                     std::string_view name) override {
    for (const Outgoing& message : out) {
      const Hub::Key key{rank(), message.to, sent_[to_size(message.to)]++};
      Operation operation = describe_as(OperationKind::message, name, message.buffer);
      operation.number = key.number;
      world_->come(*hub_, key, 0,
                   {.operation = std::move(operation), .data = Bytes(message.buffer)});
    }
    std::vector<Handle> handles;
    handles.reserve(in.size());
    for (const Incoming& message : in) {
      const Hub::Key key{message.from, rank(), received_[to_size(message.from)]++};
      Operation operation = describe_as(OperationKind::message, name, message.buffer);
      operation.number = key.number;
      auto meeting = world_->come(*hub_, key, 1, {.operation = std::move(operation)});
      handles.emplace_back(std::make_unique<AwaitMeeting>(
          world_, std::move(meeting), 1, [buffer = message.buffer](Meeting& m) {
            copy_bytes(m.brought.front()->data.data(), buffer.data, buffer.bytes());
          }));
    }
    return join(std::move(handles));
  }

  void do_barrier(std::string_view name) override {
    collective({.operation = describe_as(OperationKind::barrier, name, {})}, {}).wait();
  }

  std::unique_ptr<Group> do_subgroup(std::span<const int> members, std::string_view name,
                                     GroupUse) override {
    const std::vector<int> list(members.begin(), members.end());
    const auto place = std::ranges::find(list, rank()) - list.begin();
    auto hub = world_->join(*hub_, list, formed_[list]++, name);
    auto group = std::make_unique<InProcessGroup>(world_, std::move(hub), static_cast<int>(place));
    if (group->size() > 1) {
      const std::string text = subgroup_name(name, group->hub_->ranks);
      Operation operation = group->describe_as(OperationKind::subgroup, text, {});
      group->collective({.operation = std::move(operation)}, {}).wait();
    }
    return group;
  }

  std::shared_ptr<void> do_allocate(std::int64_t bytes) override { return memory_->take(bytes); }

  void do_copy(ConstBuffer from, Buffer to) override {
    if (from.data != to.data && from.count > 0) {
      std::memmove(to.data, from.data, to_size(from.bytes()));
    }
  }

 private:
  Operation describe_as(OperationKind kind, std::string_view name, ConstBuffer buffer,
                        Reduction reduction = Reduction::sum) const {
    return {.kind = kind,
            .name = std::string(name),
            .group = hub_->name,
            .type = buffer.type,
            .count = buffer.count,
            .reduction = reduction};
  }

  Handle collective_on(Contribution brings, const void* whole, AwaitMeeting::Finish finish) {
    brings.operation.piece = memory_->piece_of(whole);
    return collective(std::move(brings), std::move(finish));
  }

  Handle collective(Contribution brings, AwaitMeeting::Finish finish) {
    const auto place = to_size(rank());
    const Hub::Key key{.number = begun_++};
    brings.operation.number = key.number;
    auto meeting = world_->come(*hub_, key, place, std::move(brings));
    return Handle(
        std::make_unique<AwaitMeeting>(world_, std::move(meeting), place, std::move(finish)));
  }

  std::shared_ptr<World> world_;
  std::shared_ptr<Hub> hub_;
  std::int64_t begun_ = 0;                     // collectives
  std::vector<std::int64_t> sent_, received_;  // messages, by peer
  std::map<std::vector<int>, std::int64_t> formed_;
  std::shared_ptr<HostMemory> memory_ = std::make_shared<HostMemory>();
};

void run_rank(const std::shared_ptr<World>& world, int rank,
              const std::function<void(Group& world)>& rank_main) {
  try {
    InProcessGroup group(world, world->hub(), rank);
    rank_main(group);
    world->leave(rank);
  } catch (const std::exception& error) {
    world->fail(rank, std::current_exception(), error.what());
  } catch (...) {
    world->fail(rank, std::current_exception(), "an exception of unknown type");
  }
}

}  // namespace

void run_in_process(int ranks, const std::function<void(Group& world)>& rank_main,
                    std::chrono::milliseconds timeout) {
  internal_check(ranks >= 1, "a world needs a rank");
  const auto world = std::make_shared<World>(ranks, timeout);
  {
    std::vector<std::jthread> threads;
    threads.reserve(to_size(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&world, &rank_main, rank] { run_rank(world, rank, rank_main); });
    }
  }
  if (world->cause()) std::rethrow_exception(world->cause());
}

}  // namespace braid::comm
