#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <chrono>

#include "runtime/ops/device.h"

namespace braid::ops {

namespace {

using c10::CachingAllocator::StatType;
namespace allocator = c10::cuda::CUDACachingAllocator;

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : c10::cuda::current_device();
}

auto allocated_bytes(c10::Device device) {
  return allocator::getDeviceStats(index_of(device))
      .allocated_bytes[static_cast<std::size_t>(StatType::AGGREGATE)];
}

double host_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string cuda_version() {
  constexpr int kMajor = 1000;
  constexpr int kMinor = 10;
  int code = 0;
  C10_CUDA_CHECK(cudaRuntimeGetVersion(&code));
  return std::to_string(code / kMajor) + '.' + std::to_string(code % kMajor / kMinor);
}

void* current_stream(c10::Device device) {
  if (!device.is_cuda()) return nullptr;
  return c10::cuda::getCurrentCUDAStream(index_of(device)).stream();
}

int compute_capability(c10::Device device) {
  if (!device.is_cuda()) return 0;
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, index_of(device)));
    return value;
  };
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
         attribute(cudaDevAttrComputeCapabilityMinor);
}

void synchronise(c10::Device device) {
  if (device.is_cuda()) c10::cuda::device_synchronize();
}

std::optional<std::int64_t> allocated(c10::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  return allocated_bytes(device).current;
}

std::optional<std::int64_t> peak_allocated(c10::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  return allocated_bytes(device).peak;
}

void reset_peak(c10::Device device) {
  if (device.is_cuda()) allocator::resetPeakStats(index_of(device));
}

void release_cached(c10::Device device) {
  if (device.is_cuda()) allocator::emptyCache();
}

std::optional<DeviceFacts> device_facts(c10::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index_of(device)));
  std::size_t free = 0, all = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &all));
  std::array<char, 32> bus{};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), index_of(device)));
  return DeviceFacts{properties.name, bus.data(), static_cast<std::int64_t>(all),
                     static_cast<std::int64_t>(free)};
}

struct Mark::Event {
  cudaEvent_t handle = nullptr;
  Event() { C10_CUDA_CHECK(cudaEventCreate(&handle)); }
  ~Event() { cudaEventDestroy(handle); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

Mark::Mark() = default;
Mark::~Mark() = default;
Mark::Mark(Mark&&) noexcept = default;
Mark& Mark::operator=(Mark&&) noexcept = default;

Mark Mark::now(c10::Device device) {
  if (device.is_cuda()) return on(device, current_stream(device));
  Mark mark;
  mark.host_ = host_seconds();
  return mark;
}

Mark Mark::on(c10::Device, void* stream) {
  Mark mark;
  mark.event_ = std::make_unique<Event>();
  C10_CUDA_CHECK(cudaEventRecord(mark.event_->handle, static_cast<cudaStream_t>(stream)));
  return mark;
}

double Mark::since(const Mark& earlier) const {
  if (!event_ || !earlier.event_) return host_ - earlier.host_;
  float milliseconds = 0;
  C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, earlier.event_->handle, event_->handle));
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace braid::ops
