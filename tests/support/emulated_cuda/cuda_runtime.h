#pragma once
// Stands in for CUDA's header, so that a C++ compiler takes .cu files and the kernels run on the
// host: blocks one after the other, the threads of a block as fibers that change places at barriers
// and shuffles. What would hang or be undefined on a GPU (a barrier that not all threads reach, a
// shuffle without some lanes, an access that is not aligned) ends the program.

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static  // blocks take turns
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr explicit dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
      : x(x_), y(y_), z(z_) {}
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
void emulated_launch(dim3 grid, dim3 block, const std::function<void()>& thread);
// The bits of the lane whose number differs by `mask`.
std::uint64_t emulated_shuffle(std::uint64_t bits, int mask);

inline float __shfl_xor_sync(unsigned, float value, int mask) {
  return std::bit_cast<float>(
      static_cast<std::uint32_t>(emulated_shuffle(std::bit_cast<std::uint32_t>(value), mask)));
}
inline double __shfl_xor_sync(unsigned, double value, int mask) {
  return std::bit_cast<double>(emulated_shuffle(std::bit_cast<std::uint64_t>(value), mask));
}

inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }

// A small device, so that every kernel goes round its loops.
using cudaStream_t = void*;
enum cudaError_t { cudaSuccess };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount, cudaDevAttrL2CacheSize };
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return ""; }
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? 2 : 1 << 20;
  return cudaSuccess;
}
