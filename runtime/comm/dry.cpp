#include "runtime/comm/dry.h"

#include <algorithm>
#include <cstring>

namespace braid::comm {

namespace {

class DryGroup final : public Group {
 public:
  DryGroup(int rank, int size, std::shared_ptr<Traffic> traffic)
      : Group(rank, size), traffic_(std::move(traffic)) {}

 protected:
  Handle do_all_reduce(Buffer buffer, Reduction, std::string_view) override {
    return count(OperationKind::all_reduce, buffer.bytes(),
                 2 * buffer.bytes() * (size() - 1) / size());
  }
  Handle do_reduce_scatter(ConstBuffer in, Buffer out, Reduction, std::string_view) override {
    return count(OperationKind::reduce_scatter, in.bytes(), (size() - 1) * out.bytes());
  }
  Handle do_all_gather(ConstBuffer in, Buffer out, std::string_view) override {
    return count(OperationKind::all_gather, out.bytes(), (size() - 1) * in.bytes());
  }
  Handle do_all_to_all(ConstBuffer in, std::span<const std::int64_t> in_counts, Buffer,
                       std::span<const std::int64_t>, std::string_view) override {
    const std::int64_t kept = in_counts[static_cast<std::size_t>(rank())];
    return count(OperationKind::all_to_all, in.bytes(), (in.count - kept) * bytes_of(in.type));
  }
  Handle do_broadcast(Buffer buffer, int root, std::string_view) override {
    return count(OperationKind::broadcast, buffer.bytes(), rank() == root ? buffer.bytes() : 0);
  }
  Handle do_exchange(std::span<const Outgoing> out, std::span<const Incoming>,
                     std::string_view) override {
    std::int64_t bytes = 0;
    for (const Outgoing& message : out) bytes += message.buffer.bytes();
    return count(OperationKind::message, bytes, bytes);
  }
  void do_barrier(std::string_view) override { count(OperationKind::barrier, 0, 0).wait(); }
  std::unique_ptr<Group> do_subgroup(std::span<const int> members, std::string_view,
                                     GroupUse) override {
    const auto place = std::ranges::find(members, rank()) - members.begin();
    return std::make_unique<DryGroup>(static_cast<int>(place), static_cast<int>(members.size()),
                                      traffic_);
  }
  void do_copy(ConstBuffer, Buffer) override {}

 private:
  Handle count(OperationKind kind, std::int64_t whole, std::int64_t sent) {
    ++traffic_->operations;
    traffic_->bytes += sent;
    Traffic::Volume& volume = traffic_->by_kind[kind];
    ++volume.operations;
    volume.bytes += whole;
    return {};
  }

  std::shared_ptr<Traffic> traffic_;
};

class EchoGroup final : public Group {
 public:
  EchoGroup(int rank, int size, Echo echo) : Group(rank, size), echo_(std::move(echo)) {}

 protected:
  Handle do_all_reduce(Buffer, Reduction, std::string_view) override { return {}; }
  Handle do_reduce_scatter(ConstBuffer in, Buffer out, Reduction, std::string_view) override {
    return give(in, out);
  }
  Handle do_all_gather(ConstBuffer in, Buffer out, std::string_view) override {
    echo_(in.data, out.data, in.bytes(), size());
    return {};
  }
  Handle do_all_to_all(ConstBuffer in, std::span<const std::int64_t>, Buffer out,
                       std::span<const std::int64_t>, std::string_view) override {
    return give(in, out);
  }
  Handle do_broadcast(Buffer, int, std::string_view) override { return {}; }
  Handle do_exchange(std::span<const Outgoing> out, std::span<const Incoming> in,
                     std::string_view) override {
    for (std::size_t i = 0; i < std::min(out.size(), in.size()); ++i)
      give(out[i].buffer, in[i].buffer).wait();
    return {};
  }
  void do_barrier(std::string_view) override {}
  std::unique_ptr<Group> do_subgroup(std::span<const int> members, std::string_view,
                                     GroupUse) override {
    const auto place = std::ranges::find(members, rank()) - members.begin();
    return std::make_unique<EchoGroup>(static_cast<int>(place), static_cast<int>(members.size()),
                                       echo_);
  }
  void do_copy(ConstBuffer from, Buffer to) override { give(from, to).wait(); }

 private:
  // As much as fits.
  Handle give(ConstBuffer from, Buffer to) {
    const std::int64_t bytes = std::min(from.bytes(), to.bytes());
    if (bytes > 0 && from.data != to.data) echo_(from.data, to.data, bytes, 1);
    return {};
  }

  Echo echo_;
};

}  // namespace

void echo_on_host(const void* from, void* to, std::int64_t bytes, int times) {
  for (int i = 0; i < times; ++i)
    std::memmove(static_cast<std::byte*>(to) + i * bytes, from, static_cast<std::size_t>(bytes));
}

std::unique_ptr<Group> echo_group(int rank, int size, Echo echo) {
  internal_check(rank >= 0 && rank < size, "echo_group: the rank is not in the group");
  return std::make_unique<EchoGroup>(rank, size, std::move(echo));
}

std::unique_ptr<Group> dry_group(int rank, int size, std::shared_ptr<Traffic> traffic) {
  internal_check(rank >= 0 && rank < size, "dry_group: the rank is not in the group");
  if (traffic == nullptr) traffic = std::make_shared<Traffic>();
  return std::make_unique<DryGroup>(rank, size, std::move(traffic));
}

}  // namespace braid::comm
