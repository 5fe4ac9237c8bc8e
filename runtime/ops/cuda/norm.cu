// RMSNorm and LayerNorm. A block holds one row at a time in registers, so that memory is read once;
// in backward it goes on to further rows and keeps its columns' share of the weight's gradient.

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

namespace {

constexpr int kMostPer = 4;          // packs of one thread
constexpr int kPackedThreads = 512;  // of a block whose threads hold whole packs

template <int kVec>
constexpr int most_threads() {
  return kVec == 1 ? kMaxThreads : kPackedThreads;
}
// Of a block whose threads hold `per` packs: rows that fit into fewer threads get one pack each.
template <int kVec>
constexpr int most_threads(int per) {
  return per == 1 ? most_threads<kVec>() / 2 : most_threads<kVec>();
}

// Threads of backward for which a processor has registers.
constexpr int resident_threads(int per) { return per == 1 ? 768 : 512; }

template <class T, int kVec, int kPer, bool kLayer>
__global__ void __launch_bounds__(most_threads<kVec>()) norm_forward(NormForward call) {
  __shared__ Rooms<float> rooms;
  int turn = 0;
  const int threads = static_cast<int>(blockDim.x);
  const int vectors = static_cast<int>(call.width) / kVec;
  const float share = 1.0F / static_cast<float>(call.width);
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    const std::int64_t begin = row * call.width;
    float values[kPer][kVec];
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kPer; ++p) {
      const int vector = static_cast<int>(threadIdx.x) + p * threads;
      if (vector >= vectors) continue;
      const std::int64_t at = begin + static_cast<std::int64_t>(vector) * kVec;
      load<kVec>(as<T>(call.x) + at, values[p]);
      if (call.added != nullptr) {
        float more[kVec];
        load<kVec>(as<T>(call.added) + at, more);
        // Rounded first: backward sees the sum as it was stored.
#pragma unroll
        for (int i = 0; i < kVec; ++i)
          values[p][i] = to_float(from_float<T>(values[p][i] + more[i]));
        store<kVec>(as<T>(call.sum) + at, values[p]);
      }
#pragma unroll
      for (int i = 0; i < kVec; ++i) sum += kLayer ? values[p][i] : values[p][i] * values[p][i];
    }
    sum = block_merged(sum, 0.0F, Add{}, rooms, turn);
    float mean = 0;
    if constexpr (kLayer) {
      mean = sum * share;
      sum = 0;
#pragma unroll
      for (int p = 0; p < kPer; ++p) {
        if (static_cast<int>(threadIdx.x) + p * threads >= vectors) continue;
#pragma unroll
        for (int i = 0; i < kVec; ++i) sum += (values[p][i] - mean) * (values[p][i] - mean);
      }
      sum = block_merged(sum, 0.0F, Add{}, rooms, turn);
    }
    const float inverse = rsqrtf(sum * share + call.epsilon);
    if (threadIdx.x == 0) {
      if constexpr (kLayer) call.statistics[2 * row] = mean;
      call.statistics[kLayer ? 2 * row + 1 : row] = inverse;
    }
#pragma unroll
    for (int p = 0; p < kPer; ++p) {
      const int vector = static_cast<int>(threadIdx.x) + p * threads;
      if (vector >= vectors) continue;
      const std::int64_t column = static_cast<std::int64_t>(vector) * kVec;
      float weight[kVec], bias[kVec] = {};
      load<kVec>(as<T>(call.weight) + column, weight);
      if (kLayer && call.bias != nullptr) load<kVec>(as<T>(call.bias) + column, bias);
#pragma unroll
      for (int i = 0; i < kVec; ++i)
        values[p][i] = (values[p][i] - mean) * inverse * weight[i] + bias[i];
      store<kVec>(as<T>(call.y) + begin + column, values[p]);
    }
  }
}

// Whether backward reads a row while the one before it is at work: few warps fit beside that many
// registers, and their accesses alone would not fill the memory's latency. The longest rows leave
// no registers for it.
template <int kPer>
inline constexpr bool kReadsAhead = kPer < kMostPer;

// A thread's part of a row that backward reads, as it lies in memory.
template <class T, int kVec, int kPer>
struct BackwardRow {
  Raw<T, kVec> dy[kPer], x[kPer], residual[kPer];
  float mean = 0, inverse = 0;
};

template <class T, int kVec, int kPer, bool kLayer>
__device__ __forceinline__ BackwardRow<T, kVec, kPer> read_row(const NormBackward& call,
                                                               std::int64_t row) {
  BackwardRow<T, kVec, kPer> read;
  if (kLayer) read.mean = call.statistics[2 * row];
  read.inverse = call.statistics[kLayer ? 2 * row + 1 : row];
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const std::int64_t column =
        (static_cast<std::int64_t>(threadIdx.x) + p * static_cast<int>(blockDim.x)) * kVec;
    if (column >= call.width) continue;
    const std::int64_t at = row * call.width + column;
    read.dy[p] = load_raw<kVec>(as<T>(call.dy) + at);
    read.x[p] = load_raw<kVec>(as<T>(call.x) + at);
    if (kReadsAhead<kPer> && call.residual != nullptr)
      read.residual[p] = load_raw<kVec>(as<T>(call.residual) + at);
  }
  return read;
}

// With g = dy·weight, n the normalised value and means over the row:
//   dx = (g - n·mean(g·n) - mean(g)) / sigma, an RMSNorm's without mean(g).
template <class T, int kVec, int kPer, bool kLayer>
__global__ void __launch_bounds__(most_threads<kVec>(kPer),
                                  resident_threads(kPer) / most_threads<kVec>(kPer))
    norm_backward(NormBackward call) {
  constexpr bool kAhead = kReadsAhead<kPer>;
  __shared__ Rooms<Two> rooms;
  int turn = 0;
  const int threads = static_cast<int>(blockDim.x);
  const int vectors = static_cast<int>(call.width) / kVec;
  const float share = 1.0F / static_cast<float>(call.width);
  float dweight[kPer][kVec] = {}, dbias[kLayer ? kPer : 1][kVec] = {};
  BackwardRow<T, kVec, kPer> next;
  if constexpr (kAhead) next = read_row<T, kVec, kPer, kLayer>(call, blockIdx.x);
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    if constexpr (!kAhead) next = read_row<T, kVec, kPer, kLayer>(call, row);
    const BackwardRow<T, kVec, kPer> read = next;
    if (kAhead && row + gridDim.x < call.rows)
      next = read_row<T, kVec, kPer, kLayer>(call, row + gridDim.x);
    const std::int64_t begin = row * call.width;
    float gradient[kPer][kVec], normal[kPer][kVec];
    Two sums{0, 0};
#pragma unroll
    for (int p = 0; p < kPer; ++p) {
      const int vector = static_cast<int>(threadIdx.x) + p * threads;
      if (vector >= vectors) continue;
      const std::int64_t column = static_cast<std::int64_t>(vector) * kVec;
      float weight[kVec];
      unpack(read.dy[p], gradient[p]);
      unpack(read.x[p], normal[p]);
      load<kVec>(as<T>(call.weight) + column, weight);
#pragma unroll
      for (int i = 0; i < kVec; ++i) normal[p][i] = (normal[p][i] - read.mean) * read.inverse;
      if (call.y != nullptr) {
        float y[kVec], bias[kVec] = {};
        if (kLayer && call.bias != nullptr) load<kVec>(as<T>(call.bias) + column, bias);
#pragma unroll
        for (int i = 0; i < kVec; ++i) y[i] = normal[p][i] * weight[i] + bias[i];
        store<kVec>(as<T>(call.y) + begin + column, y);
      }
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        dweight[p][i] += gradient[p][i] * normal[p][i];
        if constexpr (kLayer) dbias[p][i] += gradient[p][i];
        gradient[p][i] *= weight[i];
        sums.first += gradient[p][i] * normal[p][i];
        if constexpr (kLayer) sums.second += gradient[p][i];
      }
    }
    sums = block_merged(sums, Two{0, 0}, AddTwo{}, rooms, turn);
    const float along = sums.first * share, level = sums.second * share;
#pragma unroll
    for (int p = 0; p < kPer; ++p) {
      const int vector = static_cast<int>(threadIdx.x) + p * threads;
      if (vector >= vectors) continue;
      const std::int64_t at = begin + static_cast<std::int64_t>(vector) * kVec;
      float residual[kVec] = {};
      if (kAhead && call.residual != nullptr) unpack(read.residual[p], residual);
      if (!kAhead && call.residual != nullptr) load<kVec>(as<T>(call.residual) + at, residual);
#pragma unroll
      for (int i = 0; i < kVec; ++i)
        gradient[p][i] =
            (gradient[p][i] - normal[p][i] * along - level) * read.inverse + residual[i];
      store<kVec>(as<T>(call.dx) + at, gradient[p]);
    }
  }
  float* mine =
      call.partials + static_cast<std::int64_t>(blockIdx.x) * call.width * (kLayer ? 2 : 1);
#pragma unroll
  for (int p = 0; p < kPer; ++p) {
    const int vector = static_cast<int>(threadIdx.x) + p * threads;
    if (vector >= vectors) continue;
    const std::int64_t column = static_cast<std::int64_t>(vector) * kVec;
    store(mine + column, dweight[p]);
    if constexpr (kLayer) store(mine + call.width + column, dbias[p]);
  }
}

// How many packs each thread holds of so many.
template <int kVec>
constexpr int packs_of_thread(std::int64_t vectors) {
  if (vectors <= most_threads<kVec>(1)) return 1;
  return vectors <= 2 * most_threads<kVec>(2) ? 2 : kMostPer;
}

// Calls body(packs of a thread, threads) for rows of `width`.
template <int kVec, class Body>
void with_packs(std::int64_t width, Body body) {
  const std::int64_t vectors = width / kVec;
  const int per = packs_of_thread<kVec>(vectors);
  const int threads = whole_warps(ceil_div(vectors, per));
  if (per == 1)
    body(std::integral_constant<int, 1>{}, threads);
  else if (per == 2)
    body(std::integral_constant<int, 2>{}, threads);
  else
    body(std::integral_constant<int, kMostPer>{}, threads);
}

void expect_fits(std::int64_t width, Type type, bool aligned) {
  if (width > longest_norm(type, aligned)) throw std::runtime_error("a row is too long to norm");
}

template <bool kLayer>
void forward(const NormForward& call, Stream stream) {
  if (call.rows == 0) return;
  const auto blocks = static_cast<unsigned>(smaller(call.rows, std::int64_t{1} << 30));
  with_type(call.type, [&](auto value) {
    using T = decltype(value);
    const bool packed = call.width % kPack<T> == 0 &&
                        all_aligned(call.x, call.added, call.sum, call.weight, call.bias, call.y);
    expect_fits(call.width, call.type, packed);
    const auto run = [&](auto vec) {
      constexpr int kVec = decltype(vec)::value;
      with_packs<kVec>(call.width, [&](auto per, int threads) {
        launch(norm_forward<T, kVec, decltype(per)::value, kLayer>, dim3(blocks),
               dim3(static_cast<unsigned>(threads)), stream, call, "norm");
      });
    };
    if (packed)
      run(std::integral_constant<int, kPack<T>>{});
    else
      run(std::integral_constant<int, 1>{});
  });
}

template <bool kLayer>
void backward(const NormBackward& call, Stream stream) {
  if (call.rows == 0) return;
  const auto blocks = static_cast<unsigned>(norm_partials(call.rows, call.width));
  with_type(call.type, [&](auto value) {
    using T = decltype(value);
    const bool packed =
        call.width % kPack<T> == 0 && all_aligned(call.dy, call.x, call.weight, call.residual,
                                                  call.dx, call.y, call.bias, call.partials);
    expect_fits(call.width, call.type, packed);
    const auto run = [&](auto vec) {
      constexpr int kVec = decltype(vec)::value;
      with_packs<kVec>(call.width, [&](auto per, int threads) {
        launch(norm_backward<T, kVec, decltype(per)::value, kLayer>, dim3(blocks),
               dim3(static_cast<unsigned>(threads)), stream, call, "norm backward");
      });
    };
    if (packed)
      run(std::integral_constant<int, kPack<T>>{});
    else
      run(std::integral_constant<int, 1>{});
  });
}

}  // namespace

std::int64_t longest_norm(Type type, bool aligned) {
  if (!aligned) return std::int64_t{kMostPer} * most_threads<1>();
  const int vec = type == Type::bf16 ? kPack<Bf16> : kPack<float>;
  return std::int64_t{kMostPer} * kPackedThreads * vec;
}

// As many blocks as a processor holds at once.
std::int64_t norm_partials(std::int64_t rows, std::int64_t width) {
  const std::int64_t vectors = ceil_div(width, kPack<Bf16>);
  const int per = packs_of_thread<kPack<Bf16>>(vectors);
  const std::int64_t blocks = resident_threads(per) / whole_warps(ceil_div(vectors, per));
  return smaller(rows, larger(1, blocks) * num_processors());
}

void rms_norm(const NormForward& call, Stream stream) { forward<false>(call, stream); }
void layer_norm(const NormForward& call, Stream stream) { forward<true>(call, stream); }
void rms_norm_backward(const NormBackward& call, Stream stream) { backward<false>(call, stream); }
void layer_norm_backward(const NormBackward& call, Stream stream) { backward<true>(call, stream); }

}  // namespace braid::ops::kernels
