// Rounding to 8 bits under one scale for all values, as it stands or with rows and columns
// exchanged.

#include <cuda_fp8.h>

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerProcessor = 8;
constexpr int kTile = 64;              // rows and columns that a block turns at once
constexpr int kWords = kTile / 4 + 1;  // a column of the tile, and one against conflicts
constexpr int kIn = 8;                 // values that a thread reads at once
constexpr int kOut = kAccess;          // and writes
static_assert(kTile * kTile / kOut == kThreads, "every thread writes once");

struct Largest {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct AbsMax {
  const void* x = nullptr;
  std::int64_t elements = 0;
  float* partials = nullptr;
};

template <class T>
__global__ void __launch_bounds__(kThreads) absmax_partial(AbsMax call) {
  __shared__ Rooms<float> rooms;
  int turn = 0;
  const std::int64_t vectors = call.elements / kIn;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  float most = 0;
#pragma unroll 4
  for (std::int64_t vector = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       vector < vectors; vector += stride) {
    float values[kIn];
    load<kIn>(as<T>(call.x) + vector * kIn, values);
#pragma unroll
    for (int i = 0; i < kIn; ++i) most = fmaxf(most, fabsf(values[i]));
  }
  most = block_merged(most, 0.0F, Largest{}, rooms, turn);
  if (threadIdx.x == 0) call.partials[blockIdx.x] = most;
}

// The factor that values are multiplied with; the first block leaves its inverse for the product.
__device__ __forceinline__ float agreed_factor(const Quantise& call, Rooms<float>& rooms) {
  int turn = 0;
  float most = 0;
  for (std::int64_t i = threadIdx.x; i < call.num_partials; i += kThreads)
    most = fmaxf(most, call.partials[i]);
  most = block_merged(most, 0.0F, Largest{}, rooms, turn);
  const float largest = call.format == Fp8::e4m3 ? 448.0F : 57344.0F;
  const bool empty = !(most > 0.0F);
  most = fmaxf(most, largest / kLargestFp8Factor);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0)
    *call.scale = empty ? 1.0F : most / largest;
  return empty ? 1.0F : largest / most;
}

__device__ __forceinline__ std::uint8_t rounded(float x, Fp8 format) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, format == Fp8::e4m3 ? __NV_E4M3 : __NV_E5M2);
}

template <class T>
__global__ void __launch_bounds__(kThreads) quantise_straight(Quantise call) {
  __shared__ Rooms<float> rooms;
  const float factor = agreed_factor(call, rooms);
  const std::int64_t vectors = call.rows * call.width / kOut;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
#pragma unroll 2
  for (std::int64_t vector = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       vector < vectors; vector += stride) {
    float values[kOut];
    load<kOut>(as<T>(call.x) + vector * kOut, values);
    Pack<std::uint8_t, kOut> pack;
#pragma unroll
    for (int i = 0; i < kOut; ++i) pack.values[i] = rounded(values[i] * factor, call.format);
    *reinterpret_cast<Pack<std::uint8_t, kOut>*>(as<std::uint8_t>(call.out) + vector * kOut) = pack;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) quantise_turned(Quantise call) {
  __shared__ Rooms<float> rooms;
  __shared__ std::uint32_t tile[kTile][kWords];  // by column; four rows to a word
  const float factor = agreed_factor(call, rooms);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  constexpr int kAcross = kTile / kIn;  // threads side by side
  constexpr int kRowsAtOnce = kThreads / kAcross;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(tile);
#pragma unroll
  for (int pass = 0; pass < kTile / kRowsAtOnce; ++pass) {
    const int row = pass * kRowsAtOnce + thread / kAcross;
    const int column = thread % kAcross * kIn;
    if (first_row + row >= call.rows || first_column + column >= call.width) continue;
    float values[kIn];
    load<kIn>(as<T>(call.x) + (first_row + row) * call.width + first_column + column, values);
#pragma unroll
    for (int i = 0; i < kIn; ++i)
      bytes[(column + i) * kWords * 4 + row] = rounded(values[i] * factor, call.format);
  }
  __syncthreads();
  constexpr int kPieces = kTile / kOut;  // of a column
  const int column = thread / kPieces, piece = thread % kPieces;
  if (first_column + column >= call.width || first_row + piece * kOut >= call.rows) return;
  Pack<std::uint32_t, kOut / 4> pack;
#pragma unroll
  for (int i = 0; i < kOut / 4; ++i) pack.values[i] = tile[column][piece * kOut / 4 + i];
  *reinterpret_cast<Pack<std::uint32_t, kOut / 4>*>(
      as<std::uint8_t>(call.out) + (first_column + column) * call.rows + first_row + piece * kOut) =
      pack;
}

}  // namespace

std::int64_t absmax_partials(std::int64_t elements) {
  return larger(1, smaller(ceil_div(elements, std::int64_t{kThreads} * kIn),
                           kBlocksPerProcessor * num_processors()));
}

void absmax(Type type, const void* x, std::int64_t elements, float* partials, Stream stream) {
  with_type(type, [&](auto value) {
    launch(absmax_partial<decltype(value)>, dim3(static_cast<unsigned>(absmax_partials(elements))),
           dim3(kThreads), stream, AbsMax{x, elements, partials}, "absmax");
  });
}

void quantise(const Quantise& call, Stream stream) {
  with_type(call.type, [&](auto value) {
    using T = decltype(value);
    if (call.turned) {
      launch(quantise_turned<T>,
             dim3(static_cast<unsigned>(ceil_div(call.width, kTile)),
                  static_cast<unsigned>(ceil_div(call.rows, kTile))),
             dim3(kThreads), stream, call, "quantise, turned");
    } else {
      const std::int64_t blocks =
          smaller(ceil_div(call.rows * call.width, std::int64_t{kThreads} * kOut),
                  kBlocksPerProcessor * num_processors());
      launch(quantise_straight<T>, dim3(static_cast<unsigned>(larger(blocks, 1))), dim3(kThreads),
             stream, call, "quantise");
    }
  });
}

}  // namespace braid::ops::kernels
