// Column sums (bias gradients), always in the same order, and sums of squares.

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

Reach reach() {
#ifdef __CUDACC__
  return Reach::gpu;
#else
  return Reach::host;
#endif
}

namespace {

constexpr int kSumThreads = 256;
constexpr int kSumWarps = kSumThreads / kWarp;
constexpr int kRowsAtLeast = 64;  // of one block: fewer are not worth a row of partial sums
constexpr int kAddWarps = 32;
constexpr int kSquareBlocks = 4;  // a processor

struct ColumnSum {
  Columns x;
  std::int64_t rows_per_block = 0;
  float* partials = nullptr;
};

// A block sums some rows of a stripe of columns: its warps take turns at the rows, a lane holds
// kVec neighbouring columns.
template <class T, int kVec>
__global__ void __launch_bounds__(kSumThreads) column_partial(ColumnSum call) {
  __shared__ float room[kSumWarps][kWarp * kVec];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t stripe = static_cast<std::int64_t>(blockIdx.x) * kWarp * kVec;
  const std::int64_t column = stripe + lane * kVec;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * call.rows_per_block;
  std::int64_t end = begin + call.rows_per_block;
  if (end > call.x.rows) end = call.x.rows;
  const std::int64_t width = call.x.width;
  float sums[kVec] = {};
  if (column < width) {
#pragma unroll 4
    for (std::int64_t row = begin + warp; row < end; row += kSumWarps) {
      float values[kVec];
      load<kVec>(as<T>(call.x.x) + row * width + column, values);
#pragma unroll
      for (int i = 0; i < kVec; ++i) sums[i] += values[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kVec; ++i) room[warp][lane * kVec + i] = sums[i];
  __syncthreads();
  float* mine = call.partials + static_cast<std::int64_t>(blockIdx.y) * width;
  for (int i = static_cast<int>(threadIdx.x); i < kWarp * kVec; i += kSumThreads) {
    if (stripe + i >= width) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kSumWarps; ++w) sum += room[w][i];
    mine[stripe + i] = sum;
  }
}

struct AddRows {
  const float* rows = nullptr;  // [num_rows, width]
  std::int64_t num_rows = 0, width = 0;
  ColumnTotals totals;
};

template <class T>
__global__ void __launch_bounds__(kWarp* kAddWarps) add_rows(AddRows call) {
  __shared__ float room[kAddWarps][kWarp + 1];  // a column of it lies in different banks
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (column < call.width) {
#pragma unroll 4
    for (std::int64_t row = warp; row < call.num_rows; row += kAddWarps)
      sum += call.rows[row * call.width + column];
  }
  room[warp][lane] = sum;
  __syncthreads();
  // Turned round, a warp holds what is one column's.
  sum = warp_merged(room[lane][warp], Add{});
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * kWarp + warp;
  if (lane > 0 || mine >= call.width) return;
  T* out = as<T>(call.totals.out) + mine;
  *out = from_float<T>(call.totals.fresh ? sum : to_float(*out) + sum);
}

struct SquareSum {
  const void* x = nullptr;
  std::int64_t elements = 0;
  double* partials = nullptr;
};

template <class T, int kVec>
__global__ void __launch_bounds__(kSumThreads) square_partial(SquareSum call) {
  __shared__ Rooms<double> rooms;
  int turn = 0;
  const std::int64_t vectors = call.elements / kVec;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kSumThreads;
  double sum = 0;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kSumThreads + threadIdx.x;
#pragma unroll 4
  for (std::int64_t vector = thread; vector < vectors; vector += stride) {
    float values[kVec];
    load<kVec>(as<T>(call.x) + vector * kVec, values);
    float part = 0;
#pragma unroll
    for (int i = 0; i < kVec; ++i) part += values[i] * values[i];
    sum += part;
  }
  const std::int64_t tail = vectors * kVec + thread;
  if (tail < call.elements) {
    const float value = to_float(as<T>(call.x)[tail]);
    sum += value * value;
  }
  struct AddDouble {
    __device__ __forceinline__ double operator()(double a, double b) const { return a + b; }
  };
  sum = block_merged(sum, 0.0, AddDouble{}, rooms, turn);
  if (threadIdx.x == 0) call.partials[blockIdx.x] = sum;
}

// Few enough rows of floats that one launch sums them: what other kernels leave.
bool is_partial(const Columns& x) {
  constexpr std::int64_t kMostRows = 4096;
  return x.type == Type::fp32 && x.rows <= kMostRows;
}

}  // namespace

std::int64_t column_partials(const Columns& x) {
  if (is_partial(x)) return 0;
  // Enough blocks to fill the device twice, whatever the width of a stripe.
  const std::int64_t stripes = ceil_div(x.width, kWarp * kPack<Bf16>);
  const std::int64_t wanted = ceil_div(2 * num_processors() * 8, larger(stripes, 1));
  return larger(1, smaller(wanted, ceil_div(x.rows, kRowsAtLeast)));
}

void column_sum(const Columns& x, float* partials, const ColumnTotals& totals, Stream stream) {
  if (x.width == 0) return;
  AddRows add{static_cast<const float*>(x.x), x.rows, x.width, totals};
  if (const std::int64_t splits = column_partials(x); splits > 0) {
    with_type(x.type, [&](auto value) {
      using T = decltype(value);
      const auto run = [&](auto vec) {
        constexpr int kVec = decltype(vec)::value;
        launch(column_partial<T, kVec>,
               dim3(static_cast<unsigned>(ceil_div(x.width, kWarp * kVec)),
                    static_cast<unsigned>(splits)),
               dim3(kSumThreads), stream, ColumnSum{x, ceil_div(x.rows, splits), partials},
               "column sum");
      };
      if (x.width % kPack<T> == 0 && is_aligned(x.x))
        run(std::integral_constant<int, kPack<T>>{});
      else
        run(std::integral_constant<int, 1>{});
    });
    add.rows = partials;
    add.num_rows = splits;
  }
  with_type(totals.type, [&](auto value) {
    launch(add_rows<decltype(value)>, dim3(static_cast<unsigned>(ceil_div(x.width, kWarp))),
           dim3(kWarp * kAddWarps), stream, add, "add rows");
  });
}

std::int64_t square_partials() { return kSquareBlocks * num_processors(); }

void square_sum(Type type, const void* x, std::int64_t elements, double* partials, Stream stream) {
  const SquareSum call{x, elements, partials};
  with_type(type, [&](auto value) {
    using T = decltype(value);
    const auto run = [&](auto vec) {
      launch(square_partial<T, decltype(vec)::value>,
             dim3(static_cast<unsigned>(square_partials())), dim3(kSumThreads), stream, call,
             "square sum");
    };
    if (is_aligned(x))
      run(std::integral_constant<int, kPack<T>>{});
    else
      run(std::integral_constant<int, 1>{});
  });
}

}  // namespace braid::ops::kernels
