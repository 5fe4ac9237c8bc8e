#include "runtime/comm/mpi.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "runtime/comm/mpi_engine.h"
#include "runtime/comm/reduce.h"

namespace braid::comm {

namespace {

using namespace mpi;

class AwaitActivity final : public Pending {
 public:
  AwaitActivity(std::shared_ptr<Engine> engine, std::shared_ptr<Activity> activity,
                std::function<void()> deliver)
      : engine_(std::move(engine)), activity_(std::move(activity)), deliver_(std::move(deliver)) {}

  void wait() override {
    engine_->wait(*activity_);
    if (deliver_) deliver_();
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Activity> activity_;
  std::function<void()> deliver_;
};

// Blocks that differ by one element at most. The first element of block i; of block `size`, the
// end.
std::int64_t block_start(std::int64_t count, int size, int i) {
  return i * (count / size) + std::min<std::int64_t>(i, count % size);
}

class MpiGroup final : public Group {
 public:
  MpiGroup(std::shared_ptr<Engine> engine, std::vector<int> ranks, int rank, std::string name,
           std::int64_t context, std::int64_t begun)
      : Group(rank, static_cast<int>(ranks.size())),
        engine_(std::move(engine)),
        ranks_(std::move(ranks)),
        name_(std::move(name)),
        context_(context),
        begun_(begun),
        sent_(ranks_.size()),
        received_(ranks_.size()) {}

 protected:
  // Everyone sums a block and hands it to the others.
  Handle do_all_reduce(Buffer buffer, Reduction reduction, std::string_view name) override {
    const auto held = engine_->hold();
    const auto activity = begin(OperationKind::all_reduce, name, buffer, reduction);
    const auto start = [count = buffer.count, n = size()](int i) {
      return block_start(count, n, i);
    };
    const std::int64_t first = start(rank()), length = start(rank() + 1) - first;
    const Staging mine = copied(buffer), theirs = staging(size() * length * bytes_of(buffer.type));
    const Staging sums = staging(buffer.bytes());
    each_peer([&](int peer, int world_rank) {
      activity->receive(world_rank, Channel::collective, theirs, peer * length, length);
      activity->send(world_rank, Channel::collective, mine, start(peer),
                     start(peer + 1) - start(peer));
    });
    // The activity owns what it runs, so that may not own the activity.
    activity->then([next = activity.get(), start, mine, theirs, sums, first, length, reduction,
                    type = buffer.type, self = rank(), ranks = ranks_] {
      const std::int64_t offset = first * bytes_of(type);
      const auto n = static_cast<int>(ranks.size());
      reduce_blocks(reduction, type, mine.get() + offset, theirs, length, self, n,
                    sums.get() + offset);
      for (int step = 1; step < n; ++step) {
        const int peer = (self + step) % n;
        const int world_rank = ranks[to_size(peer)];
        next->receive(world_rank, Channel::second_step, sums, start(peer),
                      start(peer + 1) - start(peer));
        next->send(world_rank, Channel::second_step, sums, first, length);
      }
    });
    return finish(activity, buffer, sums);
  }

  Handle do_reduce_scatter(ConstBuffer in, Buffer out, Reduction reduction,
                           std::string_view name) override {
    const auto held = engine_->hold();
    const auto activity = begin(OperationKind::reduce_scatter, name, out, reduction);
    const Staging mine = copied(in), theirs = staging(in.bytes());
    each_peer([&](int peer, int world_rank) {
      activity->receive(world_rank, Channel::collective, theirs, peer * out.count, out.count);
      activity->send(world_rank, Channel::collective, mine, peer * out.count, out.count);
    });
    return handle(activity, [mine, theirs, out, reduction, self = rank(), n = size()] {
      reduce_blocks(reduction, out.type, mine.get() + self * out.bytes(), theirs, out.count, self,
                    n, static_cast<std::byte*>(out.data));
    });
  }

  Handle do_all_gather(ConstBuffer in, Buffer out, std::string_view name) override {
    const auto held = engine_->hold();
    const auto activity = begin(OperationKind::all_gather, name, in);
    const Staging all = staging(out.bytes());
    copy_bytes(in.data, all.get() + rank() * in.bytes(), in.bytes());
    each_peer([&](int peer, int world_rank) {
      activity->receive(world_rank, Channel::collective, all, peer * in.count, in.count);
      activity->send(world_rank, Channel::collective, all, rank() * in.count, in.count);
    });
    return finish(activity, out, all);
  }

  Handle do_all_to_all(ConstBuffer in, std::span<const std::int64_t> in_counts, Buffer out,
                       std::span<const std::int64_t> out_counts, std::string_view name) override {
    const auto held = engine_->hold();
    const auto activity = begin(OperationKind::all_to_all, name, ConstBuffer(nullptr, 0, in.type));
    const Staging mine = copied(in), theirs = staging(out.bytes());
    const std::int64_t element = bytes_of(in.type);
    std::int64_t from = 0, to = 0;
    for (int peer = 0; peer < size(); ++peer) {
      const std::int64_t sends = in_counts[to_size(peer)], receives = out_counts[to_size(peer)];
      const int world_rank = ranks_[to_size(peer)];
      if (peer == rank()) {
        copy_bytes(mine.get() + from * element, theirs.get() + to * element, sends * element);
      } else {
        activity->receive(world_rank, Channel::collective, theirs, to, receives);
        activity->send(world_rank, Channel::collective, mine, from, sends);
      }
      from += sends;
      to += receives;
    }
    return finish(activity, out, theirs);
  }

  Handle do_broadcast(Buffer buffer, int root, std::string_view name) override {
    const auto held = engine_->hold();
    const auto activity = begin(OperationKind::broadcast, name, buffer, Reduction::sum, root);
    if (rank() != root) {
      const Staging data = staging(buffer.bytes());
      activity->receive(ranks_[to_size(root)], Channel::collective, data, 0, buffer.count);
      return finish(activity, buffer, data);
    }
    const Staging data = copied(buffer);
    each_peer([&](int, int world_rank) {
      activity->send(world_rank, Channel::collective, data, 0, buffer.count);
    });
    return handle(activity, {});
  }

  Handle do_exchange(std::span<const Outgoing> out, std::span<const Incoming> in,
                     std::string_view name) override {
    const auto held = engine_->hold();
    std::vector<Handle> handles;
    handles.reserve(in.size());
    for (const Incoming& message : in) {
      Operation operation = describe_as(OperationKind::message, name, message.buffer);
      operation.number = received_[to_size(message.from)]++;
      const auto activity = engine_->begin(std::move(operation), context_);
      const Staging data = staging(message.buffer.bytes());
      activity->receive(ranks_[to_size(message.from)], Channel::message, data, 0,
                        message.buffer.count);
      handles.push_back(finish(activity, message.buffer, data));
    }
    for (const Outgoing& message : out) {
      Operation operation = describe_as(OperationKind::message, name, message.buffer);
      operation.number = sent_[to_size(message.to)]++;
      const auto activity = engine_->begin(std::move(operation), context_);
      activity->send(ranks_[to_size(message.to)], Channel::message, copied(message.buffer), 0,
                     message.buffer.count);
    }
    return join(std::move(handles));
  }

  void do_barrier(std::string_view name) override {
    const auto held = engine_->hold();
    const auto activity = begin(OperationKind::barrier, name, {});
    const Staging nothing = staging(0);
    each_peer([&](int, int world_rank) {
      activity->receive(world_rank, Channel::collective, nothing, 0, 0);
      activity->send(world_rank, Channel::collective, nothing, 0, 0);
    });
    engine_->wait(*activity);
  }

  std::unique_ptr<Group> do_subgroup(std::span<const int> members, std::string_view name,
                                     GroupUse) override {
    std::vector<int> ranks;
    ranks.reserve(members.size());
    for (const int member : members) ranks.push_back(ranks_[to_size(member)]);
    const auto place = static_cast<int>(std::ranges::find(members, rank()) - members.begin());
    return std::make_unique<MpiGroup>(engine_, ranks, place, std::string(name),
                                      agree_on_context(ranks, name), 1);
  }

  void do_copy(ConstBuffer from, Buffer to) override {
    if (from.data != to.data && from.count > 0) {
      std::memmove(to.data, from.data, to_size(from.bytes()));
    }
  }

 private:
  static void reduce_blocks(Reduction reduction, DataType type, const std::byte* own,
                            const Staging& theirs, std::int64_t length, int self, int size,
                            std::byte* out) {
    std::vector<const std::byte*> inputs;
    inputs.reserve(to_size(size));
    for (int i = 0; i < size; ++i) {
      inputs.push_back(i == self ? own : theirs.get() + i * length * bytes_of(type));
    }
    reduce_in_order(reduction, type, inputs, out, length);
  }

  Operation describe_as(OperationKind kind, std::string_view name, ConstBuffer buffer,
                        Reduction reduction = Reduction::sum, int root = 0) const {
    return {.kind = kind,
            .name = std::string(name),
            .group = name_,
            .type = buffer.type,
            .count = buffer.count,
            .reduction = reduction,
            .root = root};
  }

  std::shared_ptr<Activity> begin(OperationKind kind, std::string_view name, ConstBuffer buffer,
                                  Reduction reduction = Reduction::sum, int root = 0) {
    Operation operation = describe_as(kind, name, buffer, reduction, root);
    operation.number = begun_++;
    return engine_->begin(std::move(operation), context_);
  }

  void each_peer(const std::function<void(int peer, int world_rank)>& visit) const {
    // From the next rank on, so that not all begin with the same one.
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank() + step) % size();
      visit(peer, ranks_[to_size(peer)]);
    }
  }

  Handle handle(std::shared_ptr<Activity> activity, std::function<void()> deliver) const {
    return Handle(
        std::make_unique<AwaitActivity>(engine_, std::move(activity), std::move(deliver)));
  }
  Handle finish(std::shared_ptr<Activity> activity, Buffer to, const Staging& from) const {
    return handle(std::move(activity), [to, from] { copy_bytes(from.get(), to.data, to.bytes()); });
  }

  // The largest that any member proposes is new to all of them.
  std::int64_t agree_on_context(const std::vector<int>& ranks, std::string_view name) const {
    const auto held = engine_->hold();
    const ConstBuffer word(nullptr, 1, DataType::int64);
    Operation operation = describe_as(OperationKind::subgroup, subgroup_name(name, ranks), word);
    operation.group = name;
    const auto activity = engine_->begin(std::move(operation), context_);
    const auto count = std::ssize(ranks);
    const Staging proposals = staging(count * bytes_of(DataType::int64));
    std::vector<std::int64_t> words(ranks.size(), engine_->next_context);
    std::memcpy(proposals.get(), words.data(), words.size() * sizeof(std::int64_t));
    const int self = engine_->settings().rank;
    const auto place = std::ranges::find(ranks, self) - ranks.begin();
    for (std::int64_t i = 0; i < count; ++i) {
      if (i == place) continue;
      activity->receive(ranks[to_size(i)], Channel::forming, proposals, i, 1);
      activity->send(ranks[to_size(i)], Channel::forming, proposals, place, 1);
    }
    engine_->wait(*activity);
    std::memcpy(words.data(), proposals.get(), words.size() * sizeof(std::int64_t));
    const std::int64_t context = *std::ranges::max_element(words);
    engine_->next_context = context + 1;
    if (context >= engine_->settings().tag_limit / kChannels) {
      throw Error({.what = fmt::format("this MPI has tags for {} groups only", context),
                   .where = fmt::format("group \"{}\"", name),
                   .fix = "use an MPI with a larger MPI_TAG_UB, such as Open MPI"});
    }
    return context;
  }

  std::shared_ptr<Engine> engine_;
  std::vector<int> ranks_;  // of the world
  std::string name_;
  std::int64_t context_;
  std::int64_t begun_;                         // collectives
  std::vector<std::int64_t> sent_, received_;  // messages, by peer
};

std::shared_ptr<Engine>& the_engine() {
  static std::shared_ptr<Engine> engine;
  return engine;
}

}  // namespace

bool mpi_available() { return true; }

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);  // may be called before MPI_Init
  const std::string_view all(text.data(), static_cast<std::size_t>(length));
  return std::string(all.substr(0, all.find_first_of(",\n")));
}

std::unique_ptr<Group> mpi_world(std::chrono::milliseconds timeout, std::int64_t piece_bytes) {
  internal_check(the_engine() == nullptr, "mpi_world: a process has one world");
  internal_check(piece_bytes > 0 && piece_bytes <= kMpiPieceBytes, "mpi_world: piece_bytes");
  int initialized = 0;
  MPI_Initialized(&initialized);
  int provided = MPI_THREAD_SINGLE;
  if (initialized != 0) MPI_Query_thread(&provided);
  if (initialized == 0) MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);

  Settings settings{.timeout = timeout, .piece_bytes = piece_bytes};
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &settings.comm), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(settings.comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(settings.comm, &settings.rank);
  MPI_Comm_size(settings.comm, &settings.size);
  int* limit = nullptr;
  int found = 0;
  MPI_Comm_get_attr(settings.comm, MPI_TAG_UB, static_cast<void*>(&limit), &found);
  constexpr int kLeastLimit = 32767;  // what the standard promises
  settings.tag_limit = found != 0 ? *limit : kLeastLimit;

  std::vector<int> ranks(to_size(settings.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  the_engine() = std::make_shared<Engine>(settings, provided >= MPI_THREAD_SERIALIZED);
  return std::make_unique<MpiGroup>(the_engine(), std::move(ranks), settings.rank, "world", 0, 0);
}

void mpi_finalize() {
  if (the_engine() == nullptr) return;
  the_engine()->drain();
  the_engine().reset();
  MPI_Finalize();
}

void mpi_abort(int status) {
  std::fflush(nullptr);
  int initialized = 0;
  MPI_Initialized(&initialized);
  // Open MPI has been seen to hang in here when other ranks were leaving at that moment.
  constexpr unsigned kSecondsToAbort = 10;
  alarm(kSecondsToAbort);
  if (the_engine() != nullptr) the_engine()->stop_helping();
  if (initialized != 0) MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace braid::comm
