#pragma once
// Memory of a group that all of its GPUs can reach: NCCL's windows. Whoever gathers writes straight
// into the others' windows, and whoever sums up reads from them; without, each byte passes through
// the communicator's own buffers on its way. Only nccl.cpp includes this.

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <functional>
#include <utility>

#include "runtime/comm/nccl_watchdog.h"
#include "runtime/comm/pooled_memory.h"

namespace braid::comm::nccl {

class WindowMemory final : public PooledMemory {
 public:
  // What every rank of the group says, in the order of ranks.
  using Words = std::vector<std::int64_t>;
  using Gather = std::function<std::vector<Words>(const Words&)>;

  // `comm` lives as long as `owner`; `held` counts the bytes of all groups.
  WindowMemory(std::shared_ptr<void> owner, ncclComm_t comm, std::atomic<std::int64_t>& held)
      : owner_(std::move(owner)), comm_(comm), held_(held) {}
  ~WindowMemory() override {
    // An exception leaves operations that may still use it.
    if (std::uncaught_exceptions() > 0) return;
    for (std::size_t i = 0; i < windows_.size(); ++i) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
      ncclCommWindowDeregister(comm_, windows_[i]);
#endif
      ncclMemFree(pieces()[i]);
    }
    held_ -= made().value();
  }
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  // Null where this group has no windows; all of its ranks then get null.
  std::shared_ptr<void> take(std::int64_t bytes, Gather gather) {
    if (missing_) return nullptr;
    gather_ = std::move(gather);
    return PooledMemory::take(bytes);
  }

 private:
  // Throws where ranks have not asked alike, or where one has no memory left.
  void* make(braid::Bytes size) override {
    void* made = allocate(size);
    const Words mine{size.value(), history(), made != nullptr ? 1 : 0};
    const std::vector<Words> all = gather_(mine);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      internal_check(all[rank][0] == mine[0] && all[rank][1] == mine[1],
                     "ranks ask for a group's memory in the same order");
      if (all[rank][2] == 1) continue;
      if (made != nullptr) ncclMemFree(made);
      throw CommError({.what = fmt::format("rank {} of the group has no {} MiB left for what it "
                                           "gathers or sums up",
                                           rank, size.value() >> 20),
                       .where = "backend nccl",
                       .fix = "plan with a smaller memory budget"});
    }
    if (!open(made, size)) {
      ncclMemFree(made);
      missing_ = true;
      return nullptr;
    }
    held_ += size.value();
    return made;
  }

  static void* allocate(braid::Bytes size) {
    void* made = nullptr;
    const auto bytes = static_cast<std::size_t>(size.value());
    if (ncclMemAlloc(&made, bytes) == ncclSuccess) return made;
    // The rest may be in blocks that tensors have left.
    c10::cuda::CUDACachingAllocator::emptyCache();
    return ncclMemAlloc(&made, bytes) == ncclSuccess ? made : nullptr;
  }

  bool open(void* made, braid::Bytes size) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    ncclWindow_t window = nullptr;
    const ncclResult_t status = ncclCommWindowRegister(
        comm_, made, static_cast<std::size_t>(size.value()), &window, NCCL_WIN_COLL_SYMMETRIC);
    if (status == ncclSuccess && window != nullptr) {
      windows_.push_back(window);
      return true;
    }
    tell(status == ncclSuccess ? "NCCL has none for these ranks" : ncclGetErrorString(status));
#else
    tell("this program was built with an NCCL older than 2.27");
#endif
    return false;
  }

  static void tell(std::string_view why) {
    static std::atomic<bool> told = false;
    if (!told.exchange(true))
      fmt::print(stderr, "braid: slower path: collectives without windows: {}\n", why);
  }

  std::shared_ptr<void> owner_;
  ncclComm_t comm_;
  std::atomic<std::int64_t>& held_;
  Gather gather_;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  std::vector<ncclWindow_t> windows_;  // by piece
#else
  std::vector<void*> windows_;
#endif
  bool missing_ = false;
};

}  // namespace braid::comm::nccl
