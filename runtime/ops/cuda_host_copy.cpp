#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "runtime/ops/host_copy_on_host.h"

namespace braid::ops {

at::Tensor host_memory(std::int64_t elements, at::ScalarType type, c10::Device device) {
  return at::empty({elements}, at::TensorOptions(type).pinned_memory(device.is_cuda()));
}

struct HostCopy::State {
  c10::Device device;
  CopyThread thread = {};  // of a CPU
  // Of a GPU: a stream of its own; when the sources are ready, and when they were copied.
  cudaStream_t stream = nullptr;
  cudaEvent_t ready = nullptr, copied = nullptr;
};

HostCopy::HostCopy(c10::Device device) : state_(std::make_unique<State>(State{.device = device})) {
  if (!device.is_cuda()) return;
  const c10::cuda::CUDAGuard guard(device);
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking));
  C10_CUDA_CHECK(cudaEventCreateWithFlags(&state_->ready, cudaEventDisableTiming));
  C10_CUDA_CHECK(cudaEventCreateWithFlags(&state_->copied, cudaEventDisableTiming));
  C10_CUDA_CHECK(cudaEventRecord(state_->copied, state_->stream));  // nothing is under way
}

HostCopy::~HostCopy() {
  if (!state_->device.is_cuda()) {
    state_->thread.wait();
    return;
  }
  // Errors were told by wait(); a driver that is gone answers nothing.
  static_cast<void>(cudaStreamSynchronize(state_->stream));
  static_cast<void>(cudaEventDestroy(state_->ready));
  static_cast<void>(cudaEventDestroy(state_->copied));
  static_cast<void>(cudaStreamDestroy(state_->stream));
}

void HostCopy::start(std::vector<Pair> pairs) {
  if (!state_->device.is_cuda()) return state_->thread.start(std::move(pairs));
  const c10::cuda::CUDAGuard guard(state_->device);
  C10_CUDA_CHECK(cudaEventRecord(state_->ready, c10::cuda::getCurrentCUDAStream().stream()));
  C10_CUDA_CHECK(cudaStreamWaitEvent(state_->stream, state_->ready, 0));
  for (const Pair& pair : pairs)
    C10_CUDA_CHECK(cudaMemcpyAsync(pair.to.data_ptr(), pair.from.const_data_ptr(),
                                   pair.from.nbytes(), cudaMemcpyDeviceToHost, state_->stream));
  C10_CUDA_CHECK(cudaEventRecord(state_->copied, state_->stream));
}

void HostCopy::hold_back_changes() {
  if (!state_->device.is_cuda()) return state_->thread.wait();
  const c10::cuda::CUDAGuard guard(state_->device);
  cudaStream_t current = c10::cuda::getCurrentCUDAStream().stream();
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(current, &capturing));
  // Without the flag a capture would take the event for one of its own.
  const unsigned flags =
      capturing == cudaStreamCaptureStatusActive ? cudaEventWaitExternal : cudaEventWaitDefault;
  C10_CUDA_CHECK(cudaStreamWaitEvent(current, state_->copied, flags));
}

void HostCopy::wait() {
  if (!state_->device.is_cuda()) return state_->thread.wait();
  C10_CUDA_CHECK(cudaEventSynchronize(state_->copied));
}

}  // namespace braid::ops
