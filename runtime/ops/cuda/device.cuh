#pragma once
// What the kernels share: 16-byte accesses, reductions, launches.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "runtime/ops/cuda/kernels.h"

namespace braid::ops::kernels {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;
constexpr int kAccess = 16;  // bytes that a thread reads or writes at once
constexpr unsigned kAllLanes = 0xffffffffU;

struct Bf16 {
  std::uint16_t bits;
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(Bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ Bf16 from_float<Bf16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

template <class T>
inline constexpr int kPack = kAccess / static_cast<int>(sizeof(T));

// 16 bytes at once. The compiler takes such a store apart where it can, even one of CUDA's own
// vectors, and then a thread writes 2 or 4 bytes at a time.
template <class T>
__device__ __forceinline__ uint4 load_packed(const T* from) {
  return *reinterpret_cast<const uint4*>(from);
}
template <class T>
__device__ __forceinline__ void store_packed(T* to, const uint4& packed) {
#ifdef __CUDACC__
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to), "r"(packed.x), "r"(packed.y), "r"(packed.z), "r"(packed.w)
               : "memory");
#else
  *reinterpret_cast<uint4*>(to) = packed;
#endif
}

__device__ __forceinline__ void unpack(const uint4& packed, float (&to)[kPack<float>]) {
  const unsigned words[] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < kPack<float>; ++i) to[i] = __uint_as_float(words[i]);
}
__device__ __forceinline__ void unpack(const uint4& packed, float (&to)[kPack<Bf16>]) {
  const unsigned words[] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < kPack<Bf16>; i += 2) {
    to[i] = __uint_as_float(words[i / 2] << 16);
    to[i + 1] = __uint_as_float(words[i / 2] & 0xffff0000U);
  }
}

__device__ __forceinline__ uint4 packed(const float (&from)[kPack<float>]) {
  return {__float_as_uint(from[0]), __float_as_uint(from[1]), __float_as_uint(from[2]),
          __float_as_uint(from[3])};
}
__device__ __forceinline__ uint4 packed(const float (&from)[kPack<Bf16>]) {
  unsigned words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned low = from_float<Bf16>(from[2 * i]).bits;
    const unsigned high = from_float<Bf16>(from[2 * i + 1]).bits;
    words[i] = low | high << 16;
  }
  return {words[0], words[1], words[2], words[3]};
}

// In accesses of at most 16 bytes.
template <int kCount, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[kCount]) {
  if constexpr (kCount % kPack<T> == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += kPack<T>) {
      float part[kPack<T>];
      unpack(load_packed(from + i), part);
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) to[i + j] = part[j];
    }
  } else {
    const auto pack = *reinterpret_cast<const Pack<T, kCount>*>(from);
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = to_float(pack.values[i]);
  }
}

template <int kCount, class T>
__device__ __forceinline__ void store(T* to, const float (&from)[kCount]) {
  if constexpr (kCount % kPack<T> == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += kPack<T>) {
      float part[kPack<T>];
#pragma unroll
      for (int j = 0; j < kPack<T>; ++j) part[j] = from[i + j];
      store_packed(to + i, packed(part));
    }
  } else {
    Pack<T, kCount> pack;
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.values[i] = from_float<T>(from[i]);
    *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
  }
}

// What load() reads, as it lies in memory: half the registers for what is to be used later.
template <class T, int kCount>
using Raw = std::conditional_t<kCount == kPack<T>, uint4, Pack<T, kCount>>;

template <int kCount, class T>
__device__ __forceinline__ Raw<T, kCount> load_raw(const T* from) {
  return *reinterpret_cast<const Raw<T, kCount>*>(from);
}
template <class T, int kCount>
__device__ __forceinline__ void unpack(const Pack<T, kCount>& pack, float (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = to_float(pack.values[i]);
}

struct Add {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

// Two sums that are made together.
struct Two {
  float first, second;
};
struct AddTwo {
  __device__ __forceinline__ Two operator()(Two a, Two b) const {
    return {a.first + b.first, a.second + b.second};
  }
};

__device__ __forceinline__ float shuffled(float value, int distance) {
  return __shfl_xor_sync(kAllLanes, value, distance);
}
__device__ __forceinline__ double shuffled(double value, int distance) {
  return __shfl_xor_sync(kAllLanes, value, distance);
}
__device__ __forceinline__ Two shuffled(Two value, int distance) {
  return {shuffled(value.first, distance), shuffled(value.second, distance)};
}

// Of the lanes of a warp, known to all of them.
template <class Value, class Merge>
__device__ __forceinline__ Value warp_merged(Value value, Merge merge) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = merge(value, shuffled(value, distance));
  return value;
}

// Shared memory of block_merged(). Two rooms that take turns make one barrier enough: who writes to
// a room again has passed the barrier of the call between, and all had read by then.
template <class Value>
struct Rooms {
  Value values[2][kWarp];
};

// Of all threads of a one-dimensional block of whole warps, known to all of them. `turn` counts
// the calls.
template <class Value, class Merge>
__device__ __forceinline__ Value block_merged(Value value, Value nothing, Merge merge,
                                              Rooms<Value>& rooms, int& turn) {
  value = warp_merged(value, merge);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return value;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Value* room = rooms.values[turn & 1];
  ++turn;
  if (lane == 0) room[static_cast<int>(threadIdx.x) / kWarp] = value;
  __syncthreads();
  // Every warp merges all: one barrier less than telling the others.
  return warp_merged(lane < warps ? room[lane] : nothing, merge);
}

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

inline int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}
inline std::int64_t num_processors() { return device_attribute(cudaDevAttrMultiProcessorCount); }

inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
inline std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
// Whole warps for so many threads.
inline int whole_warps(std::int64_t threads) {
  return static_cast<int>(ceil_div(larger(threads, 1), kWarp) * kWarp);
}

// The kernel's argument goes by value: all that it needs lies in constant memory.
template <class Call>
void launch(void (*kernel)(Call), dim3 grid, dim3 block, Stream stream, const Call& call,
            const char* name) {
#ifdef __CUDACC__
  kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(call);
#else
  emulated_launch(grid, block, [&] { kernel(call); });
  static_cast<void>(stream);
#endif
  check(cudaGetLastError(), name);
}

inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kAccess == 0;
}
template <class... Pointers>
bool all_aligned(const Pointers*... pointers) {
  return (is_aligned(pointers) && ...);
}

// Calls body(T{}) with the element type.
template <class Body>
void with_type(Type type, Body body) {
  switch (type) {
    case Type::bf16:
      body(Bf16{});
      return;
    case Type::fp32:
      body(float{});
      return;
  }
}

template <class T>
__device__ __forceinline__ const T* as(const void* pointer) {
  return static_cast<const T*>(pointer);
}
template <class T>
__device__ __forceinline__ T* as(void* pointer) {
  return static_cast<T*>(pointer);
}

}  // namespace braid::ops::kernels
