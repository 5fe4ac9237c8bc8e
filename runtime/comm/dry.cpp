#include "runtime/comm/dry.h"

#include <algorithm>

namespace braid::comm {

namespace {

class DryGroup final : public Group {
 public:
  DryGroup(int rank, int size, std::shared_ptr<Traffic> traffic)
      : Group(rank, size), traffic_(std::move(traffic)) {}

 protected:
  Handle do_all_reduce(Buffer buffer, Reduction, std::string_view) override {
    return count(2 * buffer.bytes() * (size() - 1) / size());
  }
  Handle do_reduce_scatter(ConstBuffer, Buffer out, Reduction, std::string_view) override {
    return count((size() - 1) * out.bytes());
  }
  Handle do_all_gather(ConstBuffer in, Buffer, std::string_view) override {
    return count((size() - 1) * in.bytes());
  }
  Handle do_all_to_all(ConstBuffer in, std::span<const std::int64_t> in_counts, Buffer,
                       std::span<const std::int64_t>, std::string_view) override {
    const std::int64_t kept = in_counts[static_cast<std::size_t>(rank())];
    return count((in.count - kept) * bytes_of(in.type));
  }
  Handle do_broadcast(Buffer buffer, int root, std::string_view) override {
    return count(rank() == root ? buffer.bytes() : 0);
  }
  Handle do_exchange(std::span<const Outgoing> out, std::span<const Incoming>,
                     std::string_view) override {
    std::int64_t bytes = 0;
    for (const Outgoing& message : out) bytes += message.buffer.bytes();
    return count(bytes);
  }
  void do_barrier(std::string_view) override { count(0).wait(); }
  std::unique_ptr<Group> do_subgroup(std::span<const int> members, std::string_view) override {
    const auto place = std::ranges::find(members, rank()) - members.begin();
    return std::make_unique<DryGroup>(static_cast<int>(place), static_cast<int>(members.size()),
                                      traffic_);
  }
  void do_copy(ConstBuffer, Buffer) override {}

 private:
  Handle count(std::int64_t bytes) {
    ++traffic_->operations;
    traffic_->bytes += bytes;
    return {};
  }

  std::shared_ptr<Traffic> traffic_;
};

}  // namespace

std::unique_ptr<Group> dry_group(int rank, int size, std::shared_ptr<Traffic> traffic) {
  internal_check(rank >= 0 && rank < size, "dry_group: the rank is not in the group");
  if (traffic == nullptr) traffic = std::make_shared<Traffic>();
  return std::make_unique<DryGroup>(rank, size, std::move(traffic));
}

}  // namespace braid::comm
