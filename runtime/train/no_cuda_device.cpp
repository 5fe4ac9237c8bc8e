// Stands in for cuda_device.cpp where CUDA is absent.

#include "runtime/train/device_memory.h"

namespace braid::train {

std::optional<std::int64_t> peak_allocated(c10::Device) { return std::nullopt; }

}  // namespace braid::train
