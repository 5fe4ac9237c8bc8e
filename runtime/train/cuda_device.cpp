#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "runtime/train/device_memory.h"

namespace braid::train {

std::optional<std::int64_t> peak_allocated(c10::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  using c10::CachingAllocator::StatType;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(
      device.has_index() ? device.index() : c10::cuda::current_device());
  return stats.allocated_bytes[static_cast<std::size_t>(StatType::AGGREGATE)].peak;
}

}  // namespace braid::train
