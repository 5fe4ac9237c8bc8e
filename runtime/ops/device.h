#pragma once
// What must be asked of the device itself: its clock, its memory, its name. A CPU answers at once,
// and counts no memory.

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace braid::ops {

std::string cuda_version();  // of the runtime library, "13.0"; empty in a build without CUDA

// The driver's handle of the stream that the device's work goes to; null on a CPU.
void* current_stream(c10::Device device);

// 90 for a GPU of compute capability 9.0; 0 for a CPU.
int compute_capability(c10::Device device);
// Tensor cores multiply in fp8 from Ada (8.9) on. CPUs round the factors and multiply in fp32.
inline constexpr int kFirstWithFp8 = 89;
inline bool has_fp8(c10::Device device) {
  return !device.is_cuda() || compute_capability(device) >= kFirstWithFp8;
}

// Waits until the device has done all that it was given.
void synchronise(c10::Device device);

// Bytes that the device's allocator has handed out; the most at one moment since the process began
// or reset_peak() was called. Nothing on CPUs and in a build without CUDA.
std::optional<std::int64_t> allocated(c10::Device device);
std::optional<std::int64_t> peak_allocated(c10::Device device);
void reset_peak(c10::Device device);
// Gives back what the allocator keeps for later.
void release_cached(c10::Device device);

struct DeviceFacts {
  std::string name;
  std::string bus;          // where it sits in its host: ranks with equal ones share it
  std::int64_t memory = 0;  // bytes, all of it
  std::int64_t free = 0;    // bytes that this process could still take
};
// Nothing for a CPU.
std::optional<DeviceFacts> device_facts(c10::Device device);

// A moment on the device's compute stream: the host may be far ahead of it.
class Mark {
 public:
  Mark();
  ~Mark();
  Mark(Mark&&) noexcept;
  Mark& operator=(Mark&&) noexcept;

  // Now, in the order of the current stream of `device`.
  static Mark now(c10::Device device);
  // The moment at which a stream of the device, given as the driver's handle, has done all that it
  // was given so far.
  static Mark on(c10::Device device, void* stream);
  // Seconds from `earlier` to this one; both must have been reached (synchronise).
  double since(const Mark& earlier) const;

 private:
  struct Event;
  std::unique_ptr<Event> event_;  // on a GPU
  double host_ = 0;               // seconds, elsewhere
};

}  // namespace braid::ops
