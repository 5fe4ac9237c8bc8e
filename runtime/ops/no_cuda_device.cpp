// Stands in for cuda_device.cpp where CUDA is absent: all devices are CPUs.

#include <chrono>

#include "runtime/ops/device.h"

namespace braid::ops {

std::string cuda_version() { return {}; }
void* current_stream(c10::Device) { return nullptr; }
int compute_capability(c10::Device) { return 0; }
void synchronise(c10::Device) {}
std::optional<std::int64_t> allocated(c10::Device) { return std::nullopt; }
std::optional<std::int64_t> peak_allocated(c10::Device) { return std::nullopt; }
void reset_peak(c10::Device) {}
void release_cached(c10::Device) {}
std::optional<DeviceFacts> device_facts(c10::Device) { return std::nullopt; }

struct Mark::Event {};

Mark::Mark() = default;
Mark::~Mark() = default;
Mark::Mark(Mark&&) noexcept = default;
Mark& Mark::operator=(Mark&&) noexcept = default;

Mark Mark::now(c10::Device) {
  Mark mark;
  mark.host_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  return mark;
}

Mark Mark::on(c10::Device device, void*) { return now(device); }

double Mark::since(const Mark& earlier) const { return host_ - earlier.host_; }

}  // namespace braid::ops
