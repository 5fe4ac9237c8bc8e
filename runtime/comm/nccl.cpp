#include "runtime/comm/nccl.h"

#include <c10/cuda/CUDAStream.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <string_view>

#include "runtime/comm/nccl_memory.h"
#include "runtime/comm/nccl_watchdog.h"

namespace braid::comm {

namespace {

using namespace nccl;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

ncclDataType_t to_nccl(DataType type) {
  switch (type) {
    case DataType::int64:
      return ncclInt64;
    case DataType::fp64:
      return ncclFloat64;
    case DataType::fp32:
      return ncclFloat32;
    case DataType::bf16:
      return ncclBfloat16;
  }
  return ncclFloat32;
}

ncclRedOp_t to_nccl(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return ncclSum;
    case Reduction::max:
      return ncclMax;
  }
  return ncclSum;
}

cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

// What all groups of the process share.
struct Site {
  Launch launch;
  std::chrono::milliseconds timeout;
  int device;
  Store store;
  Watchdog watchdog;
  std::atomic<std::int64_t> windows{0};  // bytes
  // Where ranks share a GPU all collectives of a rank go one after the other, whatever their group:
  // two at once may each have taken the processors that the other waits for on another rank.
  std::optional<c10::cuda::CUDAStream> one_by_one;
};

// A stream that no lane has. PyTorch's pool hands out the same 32 again and again, and lanes that
// share a stream wait for each other, in another order on another rank. Streams outlive their lanes
// for later ones: the allocator still records events on those that tensors were used on.
class StreamPool {
 public:
  static c10::cuda::CUDAStream take() {
    const std::scoped_lock lock(mutex);
    auto& streams = idle[c10::cuda::current_device()];
    if (streams.empty()) return create();
    const c10::cuda::CUDAStream stream = streams.back();
    streams.pop_back();
    return stream;
  }
  static void give_back(c10::cuda::CUDAStream stream) {
    const std::scoped_lock lock(mutex);
    idle[stream.device_index()].push_back(stream);
  }

 private:
  static c10::cuda::CUDAStream create() {
    int least = 0, greatest = 0;
    C10_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t stream = nullptr;
    C10_CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    return c10::cuda::getStreamFromExternal(stream, c10::cuda::current_device());
  }

  inline static std::mutex mutex;
  inline static std::map<c10::DeviceIndex, std::vector<c10::cuda::CUDAStream>> idle;
};

// A communicator and its stream: the lane's own, or the one that all lanes of the process share.
class Lane {
 public:
  Lane(Site& site, ncclComm_t comm, std::optional<c10::cuda::CUDAStream> shared = {})
      : site_(site), comm_(comm), own_(!shared), stream_(shared ? *shared : StreamPool::take()) {
    site_.watchdog.add(comm_);
  }
  ~Lane() {
    site_.watchdog.remove(comm_);
    // An exception leaves operations that no other rank will ever join.
    if (std::uncaught_exceptions() > 0) {
      ncclCommAbort(comm_);
    } else {
      ncclCommDestroy(comm_);
      if (own_) StreamPool::give_back(stream_);
    }
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_.stream(); }

 private:
  Site& site_;
  ncclComm_t comm_;
  bool own_;
  c10::cuda::CUDAStream stream_;
};

// Forgotten or not, the current stream may not reuse the buffers before the operation is done.
class AwaitEvents final : public Pending {
 public:
  AwaitEvents(std::vector<std::shared_ptr<Event>> events, std::vector<void*> streams)
      : events_(std::move(events)), streams_(std::move(streams)) {}
  ~AwaitEvents() override {
    try {
      wait();
    } catch (const std::exception& error) {
      fmt::print(stderr, "braid: {}\n", error.what());
    }
  }
  AwaitEvents(const AwaitEvents&) = delete;
  AwaitEvents& operator=(const AwaitEvents&) = delete;

  void wait() override {
    for (const auto& event : std::exchange(events_, {})) event->block(current_stream());
  }
  std::span<void* const> streams() const override { return streams_; }

 private:
  std::vector<std::shared_ptr<Event>> events_;
  std::vector<void*> streams_;
};

// One key for each rank. Throws where a rank does not come.
void wait_for_keys(Site& site, const std::vector<std::string>& keys, const std::vector<int>& ranks,
                   const Operation& operation) {
  try {
    site.store->wait(keys, site.timeout);
  } catch (const std::exception&) {
    std::vector<int> missing;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!site.store->check({keys[i]})) missing.push_back(ranks[i]);
    }
    throw CommError(absence(site.launch.rank, operation, missing, site.timeout));
  }
}

class NcclGroup final : public Group {
 public:
  // Collective over the ranks. `path` is one that no other group of these ranks has.
  NcclGroup(std::shared_ptr<Site> site, std::vector<int> ranks, int rank, std::string name,
            std::string path, GroupUse use)
      : Group(rank, static_cast<int>(ranks.size())),
        site_(std::move(site)),
        ranks_(std::move(ranks)),
        name_(std::move(name)),
        path_(std::move(path)),
        sent_(ranks_.size()),
        received_(ranks_.size()) {
    if (size() == 1) return;
    meet();
    const ncclComm_t comm = communicator();
    // Communicators take time to make and to end, and memory as long as they are there.
    if (use == GroupUse::messages_up) {
      up_ = std::make_unique<Lane>(*site_, comm);
      return;
    }
    collectives_ = std::make_shared<Lane>(*site_, comm, site_->one_by_one);
    memory_ = std::make_shared<WindowMemory>(std::make_shared<Held>(site_, collectives_), comm,
                                             site_->windows);
    if (use == GroupUse::everything) {
      up_ = std::make_unique<Lane>(*site_, split_off(comm));
      down_ = std::make_unique<Lane>(*site_, split_off(comm));
    }
    C10_CUDA_CHECK(cudaMalloc(&word_, sizeof(std::int64_t)));
    C10_CUDA_CHECK(cudaMemset(word_, 0, sizeof(std::int64_t)));
  }
  ~NcclGroup() override { cudaFree(word_); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  std::int64_t allocated() const override { return site_->windows; }

 protected:
  Handle do_all_reduce(Buffer buffer, Reduction reduction, std::string_view name) override {
    return collective(describe_as(OperationKind::all_reduce, name, buffer, reduction),
                      [&](const Lane& lane) {
                        return ncclAllReduce(buffer.data, buffer.data, to_size(buffer.count),
                                             to_nccl(buffer.type), to_nccl(reduction), lane.comm(),
                                             lane.stream());
                      });
  }

  Handle do_reduce_scatter(ConstBuffer in, Buffer out, Reduction reduction,
                           std::string_view name) override {
    return collective(
        describe_as(OperationKind::reduce_scatter, name, out, reduction), [&](const Lane& lane) {
          return ncclReduceScatter(in.data, out.data, to_size(out.count), to_nccl(out.type),
                                   to_nccl(reduction), lane.comm(), lane.stream());
        });
  }

  Handle do_all_gather(ConstBuffer in, Buffer out, std::string_view name) override {
    return collective(describe_as(OperationKind::all_gather, name, in), [&](const Lane& lane) {
      return ncclAllGather(in.data, out.data, to_size(in.count), to_nccl(in.type), lane.comm(),
                           lane.stream());
    });
  }

  Handle do_all_to_all(ConstBuffer in, std::span<const std::int64_t> in_counts, Buffer out,
                       std::span<const std::int64_t> out_counts, std::string_view name) override {
    const ConstBuffer blocks_differ(nullptr, 0, in.type);
    return collective(describe_as(OperationKind::all_to_all, name, blocks_differ),
                      [&](const Lane& lane) {
                        const auto* from = static_cast<const std::byte*>(in.data);
                        auto* to = static_cast<std::byte*>(out.data);
                        for (int peer = 0; peer < size(); ++peer) {
                          const std::int64_t sends = in_counts[to_size(peer)],
                                             receives = out_counts[to_size(peer)];
                          if (sends > 0) send_on(lane, from, sends, in.type, peer);
                          if (receives > 0) receive_on(lane, to, receives, in.type, peer);
                          from += sends * bytes_of(in.type);
                          to += receives * bytes_of(in.type);
                        }
                        return ncclSuccess;
                      });
  }

  Handle do_broadcast(Buffer buffer, int root, std::string_view name) override {
    Operation operation = describe_as(OperationKind::broadcast, name, buffer);
    operation.root = root;
    return collective(std::move(operation), [&](const Lane& lane) {
      return ncclBroadcast(buffer.data, buffer.data, to_size(buffer.count), to_nccl(buffer.type),
                           root, lane.comm(), lane.stream());
    });
  }

  Handle do_exchange(std::span<const Outgoing> out, std::span<const Incoming> in,
                     std::string_view name) override {
    std::vector<std::shared_ptr<Event>> events;
    std::vector<void*> streams;
    for (const bool upward : {true, false}) {
      std::vector<Outgoing> sends;
      std::vector<Incoming> receives;
      std::ranges::copy_if(out, std::back_inserter(sends),
                           [&](const Outgoing& m) { return (m.to > rank()) == upward; });
      std::ranges::copy_if(in, std::back_inserter(receives),
                           [&](const Incoming& m) { return (m.from < rank()) == upward; });
      if (sends.empty() && receives.empty()) continue;
      const Lane& lane = upward ? *up_ : *down_;
      events.push_back(exchange_on(lane, sends, receives, name));
      streams.push_back(lane.stream());
    }
    return Handle(std::make_unique<AwaitEvents>(std::move(events), std::move(streams)));
  }

  void do_barrier(std::string_view name) override {
    const auto done =
        launch_collective(describe_as(OperationKind::barrier, name, {}), [&](const Lane& lane) {
          return ncclAllReduce(word_, word_, 1, ncclInt64, ncclSum, lane.comm(), lane.stream());
        });
    done->synchronize();
  }

  std::unique_ptr<Group> do_subgroup(std::span<const int> members, std::string_view name,
                                     GroupUse use) override {
    const std::vector<int> list(members.begin(), members.end());
    std::vector<int> ranks;
    ranks.reserve(list.size());
    for (const int member : list) ranks.push_back(ranks_[to_size(member)]);
    const auto place = static_cast<int>(std::ranges::find(list, rank()) - list.begin());
    std::string path = path_;
    for (const int member : ranks) path += fmt::format(",{}", member);
    path += fmt::format("#{}", formed_[list]++);
    return std::make_unique<NcclGroup>(site_, std::move(ranks), place, std::string(name),
                                       std::move(path), use);
  }

  void do_gather_words(std::span<const std::int64_t> in, std::span<std::int64_t> out,
                       std::string_view name) override {
    Operation operation = describe_as(OperationKind::all_gather, name, {});
    operation.number = gathered_++;
    const auto key = [&](int world_rank) {
      return fmt::format("{}/words/{}/{}", path_, operation.number, world_rank);
    };
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(in.data());
    site_->store->set(key(site_->launch.rank),
                      std::vector<std::uint8_t>(bytes, bytes + in.size_bytes()));
    std::vector<std::string> keys;
    keys.reserve(ranks_.size());
    for (const int world_rank : ranks_) keys.push_back(key(world_rank));
    wait_for_keys(*site_, keys, ranks_, operation);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::vector<std::uint8_t> words = site_->store->get(keys[i]);
      internal_check(words.size() == in.size_bytes(), "ranks gather other numbers of words");
      std::memcpy(out.data() + i * in.size(), words.data(), words.size());
    }
  }

  std::shared_ptr<void> do_allocate(std::int64_t bytes) override {
    return memory_->take(bytes, [this](const WindowMemory::Words& mine) {
      std::vector<std::int64_t> all(mine.size() * to_size(size()));
      do_gather_words(mine, all, "memory of group " + name_);
      std::vector<WindowMemory::Words> ranks;
      for (auto word = all.begin(); word != all.end(); word += std::ssize(mine))
        ranks.emplace_back(word, word + std::ssize(mine));
      return ranks;
    });
  }

  void do_copy(ConstBuffer from, Buffer to) override {
    if (from.data == to.data || from.count == 0) return;
    C10_CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, to_size(from.bytes()),
                                   cudaMemcpyDeviceToDevice, current_stream()));
  }

 private:
  // NCCL would wait for ever for a rank that does not come to form the group.
  void meet() {
    const Operation operation{
        .kind = OperationKind::subgroup, .name = subgroup_name(name_, ranks_), .group = name_};
    const auto key = [&](int world_rank) { return fmt::format("{}/here/{}", path_, world_rank); };
    site_->store->set(key(site_->launch.rank), to_bytes(operation.name));
    std::vector<std::string> keys;
    keys.reserve(ranks_.size());
    for (const int world_rank : ranks_) keys.push_back(key(world_rank));
    wait_for_keys(*site_, keys, ranks_, operation);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      Operation other = operation;
      other.name = to_text(site_->store->get(keys[i]));
      if (other != operation) {
        throw CommError(disagreement(site_->launch.rank, operation, ranks_[i], other));
      }
    }
  }

  ncclComm_t communicator() {
    const std::string key = path_ + "/id";
    ncclUniqueId id{};
    if (rank() == 0) {
      check_nccl(ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId");
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(&id);
      site_->store->set(key, std::vector<std::uint8_t>(bytes, bytes + sizeof(id)));
    }
    const std::vector<std::uint8_t> bytes = site_->store->get(key);
    internal_check(bytes.size() == sizeof(id), "an id of NCCL has its size");
    std::memcpy(&id, bytes.data(), sizeof(id));
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    // What lies in windows is gathered by the GPU's copy engines, beside whatever computes.
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
    check_nccl(ncclCommInitRankConfig(&comm, size(), id, rank(), &config), nullptr,
               "ncclCommInitRankConfig");
    return comm;
  }

  ncclComm_t split_off(ncclComm_t comm) const {
    ncclComm_t other = nullptr;
    check_nccl(ncclCommSplit(comm, 0, rank(), &other, nullptr), comm, "ncclCommSplit");
    return other;
  }

  Operation describe_as(OperationKind kind, std::string_view name, ConstBuffer buffer,
                        Reduction reduction = Reduction::sum) const {
    return {.kind = kind,
            .name = std::string(name),
            .group = name_,
            .type = buffer.type,
            .count = buffer.count,
            .reduction = reduction};
  }

  static void send_on(const Lane& lane, const void* data, std::int64_t count, DataType type,
                      int to) {
    check_nccl(ncclSend(data, to_size(count), to_nccl(type), to, lane.comm(), lane.stream()),
               lane.comm(), "ncclSend");
  }
  static void receive_on(const Lane& lane, void* data, std::int64_t count, DataType type,
                         int from) {
    check_nccl(ncclRecv(data, to_size(count), to_nccl(type), from, lane.comm(), lane.stream()),
               lane.comm(), "ncclRecv");
  }

  // Queues what `launch` does behind the current stream's work.
  template <typename Launching>
  Flight run(const Lane& lane, const Launching& launch) {
    Flight flight{std::make_shared<Event>(), std::make_shared<Event>()};
    flight.ready->record(current_stream());
    flight.ready->block(lane.stream());
    check_nccl(ncclGroupStart(), lane.comm(), "ncclGroupStart");
    const ncclResult_t status = launch(lane);
    check_nccl(ncclGroupEnd(), lane.comm(), "ncclGroupEnd");
    check_nccl(status, lane.comm(), "NCCL");
    flight.done->record(lane.stream());
    return flight;
  }

  template <typename Launching>
  std::shared_ptr<Event> launch_collective(Operation operation, const Launching& launch) {
    operation.number = begun_++;
    const auto ticket = site_->watchdog.begin({.rank = site_->launch.rank,
                                               .members = ranks_,
                                               .channel = path_,
                                               .operation = std::move(operation)});
    const Flight flight = run(*collectives_, launch);
    site_->watchdog.launched(ticket, flight);
    return flight.done;
  }

  template <typename Launching>
  Handle collective(Operation operation, const Launching& launch) {
    return Handle(
        std::make_unique<AwaitEvents>(std::vector{launch_collective(std::move(operation), launch)},
                                      std::vector<void*>{collectives_->stream()}));
  }

  Watchdog::Ticket begin_message(std::string_view name, ConstBuffer buffer, int from, int to,
                                 std::int64_t number) {
    Operation operation = describe_as(OperationKind::message, name, buffer);
    operation.number = number;
    const int sender = ranks_[to_size(from)], receiver = ranks_[to_size(to)];
    return site_->watchdog.begin({.rank = site_->launch.rank,
                                  .members = {sender, receiver},
                                  .channel = fmt::format("{}/{}>{}", path_, sender, receiver),
                                  .operation = std::move(operation)});
  }

  std::shared_ptr<Event> exchange_on(const Lane& lane, const std::vector<Outgoing>& sends,
                                     const std::vector<Incoming>& receives, std::string_view name) {
    std::vector<Watchdog::Ticket> tickets;
    tickets.reserve(sends.size() + receives.size());
    for (const Outgoing& m : sends) {
      tickets.push_back(begin_message(name, m.buffer, rank(), m.to, sent_[to_size(m.to)]++));
    }
    for (const Incoming& m : receives) {
      tickets.push_back(
          begin_message(name, m.buffer, m.from, rank(), received_[to_size(m.from)]++));
    }
    const Flight flight = run(lane, [&](const Lane& on) {
      for (const Outgoing& m : sends) {
        send_on(on, m.buffer.data, m.buffer.count, m.buffer.type, m.to);
      }
      for (const Incoming& m : receives) {
        receive_on(on, m.buffer.data, m.buffer.count, m.buffer.type, m.from);
      }
      return ncclSuccess;
    });
    for (const auto ticket : tickets) site_->watchdog.launched(ticket, flight);
    return flight.done;
  }

  std::shared_ptr<Site> site_;
  std::vector<int> ranks_;  // of the world
  std::string name_, path_;
  // Tensors in the group's memory may outlive the group: they keep its communicator.
  using Held = std::pair<std::shared_ptr<Site>, std::shared_ptr<Lane>>;
  std::shared_ptr<Lane> collectives_;
  std::shared_ptr<WindowMemory> memory_;
  std::unique_ptr<Lane> up_, down_;
  void* word_ = nullptr;                       // on the device, for barriers
  std::int64_t begun_ = 0;                     // collectives
  std::int64_t gathered_ = 0;                  // words on hosts
  std::vector<std::int64_t> sent_, received_;  // messages, by peer
  std::map<std::vector<int>, std::int64_t> formed_;
};

// NCCL refuses two ranks on one GPU only when the first communicator is made, and without a word on
// which. The GPU's place in its host tells them apart, whatever number a process sees it under.
void expect_own_gpu(const Store& store, const Launch& launch, int device) {
  if (launch.size == 1 || ranks_share_gpus()) return;
  std::array<char, 64> bus{};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device));
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  if (store->add(fmt::format("braid/gpu/{}/{}", host.data(), bus.data()), 1) == 1) return;
  throw Error({.what = fmt::format("rank {} has the GPU {} of {} together with another rank",
                                   launch.rank, bus.data(), host.data()),
               .where = "backend nccl",
               .fix = "start as many ranks on a node as it has GPUs, or give each its own "
                      "(srun --gpus-per-task=1, CUDA_VISIBLE_DEVICES)"});
}

}  // namespace

bool nccl_available() { return true; }

std::string nccl_version() {
  constexpr int kMajor = 10000;
  constexpr int kMinor = 100;
  int code = 0;
  if (ncclGetVersion(&code) != ncclSuccess) return {};
  return std::to_string(code / kMajor) + '.' + std::to_string(code % kMajor / kMinor) + '.' +
         std::to_string(code % kMinor);
}

bool ranks_share_gpus() { return process_environment("NCCL_MULTI_RANK_GPU_ENABLE") == "1"; }

std::unique_ptr<Group> nccl_world(const Launch& launch, std::chrono::milliseconds timeout) {
  const int device =
      device_of(launch, static_cast<int>(c10::cuda::device_count()), ranks_share_gpus());
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  Store store = connect(launch, true, timeout);
  expect_own_gpu(store, launch, device);
  std::shared_ptr<Site> site(
      new Site{launch,
               timeout,
               device,
               std::move(store),
               {launch, timeout, device},
               0,
               ranks_share_gpus() ? std::optional(StreamPool::take()) : std::nullopt});
  std::vector<int> ranks(to_size(launch.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<NcclGroup>(std::move(site), std::move(ranks), launch.rank, "world",
                                     "braid/world", GroupUse::everything);
}

}  // namespace braid::comm
