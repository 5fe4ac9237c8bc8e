#pragma once
// What a device's allocator knows of its own use.

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace braid::train {

// The most bytes in use at one moment since the process began. Nothing on CPUs, whose allocator
// does not count, and in a build without CUDA.
std::optional<std::int64_t> peak_allocated(c10::Device device);

}  // namespace braid::train
