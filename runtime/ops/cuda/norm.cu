// RMSNorm and LayerNorm. A block holds one row at a time in registers, so that memory is read once;
// in backward it goes on to further rows and keeps its columns' share of the weight's gradient.

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

namespace {

constexpr int kMostPer = 4;          // packs of one thread
constexpr int kPackedThreads = 512;  // of a block whose threads hold whole packs
// Backward's rows follow each other in a block, so that many blocks hide their latencies.
constexpr std::int64_t kThreadsPerProcessor = 1024;
constexpr std::int64_t kMostBlocksPerProcessor = 10;

template <int kVec>
constexpr int most_threads() {
  return kVec == 1 ? kMaxThreads : kPackedThreads;
}

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

// With g = dy·weight, n the normalised value and means over the row:
//   dx = (g - n·mean(g·n) - mean(g)) / sigma, an RMSNorm's without mean(g).
template <class T, int kVec, int kPer, bool kLayer>
__global__ void __launch_bounds__(most_threads<kVec>()) norm_backward(NormBackward call) {
  __shared__ Rooms<Two> rooms;
  int turn = 0;
  const int threads = static_cast<int>(blockDim.x);
  const int vectors = static_cast<int>(call.width) / kVec;
  const float share = 1.0F / static_cast<float>(call.width);
  float dweight[kPer][kVec] = {}, dbias[kLayer ? kPer : 1][kVec] = {};
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    const std::int64_t begin = row * call.width;
    const float mean = kLayer ? call.statistics[2 * row] : 0.0F;
    const float inverse = call.statistics[kLayer ? 2 * row + 1 : row];
    float gradient[kPer][kVec], normal[kPer][kVec];
    Two sums{0, 0};
#pragma unroll
    for (int p = 0; p < kPer; ++p) {
      const int vector = static_cast<int>(threadIdx.x) + p * threads;
      if (vector >= vectors) continue;
      const std::int64_t column = static_cast<std::int64_t>(vector) * kVec;
      float weight[kVec];
      load<kVec>(as<T>(call.dy) + begin + column, gradient[p]);
      load<kVec>(as<T>(call.x) + begin + column, normal[p]);
      load<kVec>(as<T>(call.weight) + column, weight);
#pragma unroll
      for (int i = 0; i < kVec; ++i) normal[p][i] = (normal[p][i] - mean) * inverse;
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
      if (call.residual != nullptr) load<kVec>(as<T>(call.residual) + at, residual);
#pragma unroll
      for (int i = 0; i < kVec; ++i)
        gradient[p][i] = (gradient[p][i] - normal[p][i] * along - level) * inverse + residual[i];
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

// Calls body<kVec, kPer>(threads) for rows of `width`.
template <int kVec, class Body>
void with_packs(std::int64_t width, Body body) {
  const std::int64_t vectors = width / kVec;
  const auto threads = [&](int per) { return whole_warps(ceil_div(vectors, per)); };
  if (vectors <= most_threads<kVec>() / 2)
    body(std::integral_constant<int, 1>{}, threads(1));
  else if (vectors <= 2 * most_threads<kVec>())
    body(std::integral_constant<int, 2>{}, threads(2));
  else
    body(std::integral_constant<int, kMostPer>{}, threads(kMostPer));
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

std::int64_t norm_partials(std::int64_t rows, std::int64_t width) {
  const std::int64_t threads = whole_warps(ceil_div(width, kPack<Bf16>));
  const std::int64_t blocks =
      larger(4, smaller(kThreadsPerProcessor / threads, kMostBlocksPerProcessor));
  return smaller(rows, blocks * num_processors());
}

void rms_norm(const NormForward& call, Stream stream) { forward<false>(call, stream); }
void layer_norm(const NormForward& call, Stream stream) { forward<true>(call, stream); }
void rms_norm_backward(const NormBackward& call, Stream stream) { backward<false>(call, stream); }
void layer_norm_backward(const NormBackward& call, Stream stream) { backward<true>(call, stream); }

}  // namespace braid::ops::kernels
