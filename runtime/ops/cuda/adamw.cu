// AdamW over flat buffers: clipping, moments, master and bf16 weights in one pass over memory.

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerProcessor = 8;

__device__ __forceinline__ int run_of(const Adamw& call, std::int64_t element) {
  int run = 0;
  while (run + 1 < call.num_runs && element >= call.runs[run].end) ++run;
  return run;
}

// The master in two halves: runtime/ops/split_master.h.
template <int kVec>
__device__ __forceinline__ void load_master(const Adamw& call, std::int64_t begin,
                                            float (&master)[kVec]) {
  if (call.master != nullptr) {
    load(call.master + begin, master);
    return;
  }
  using Halves = Pack<std::uint16_t, kVec>;
  const Halves high = *reinterpret_cast<const Halves*>(as<std::uint16_t>(call.weight) + begin);
  const Halves low = *reinterpret_cast<const Halves*>(call.low + begin);
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    const int rest = static_cast<std::int16_t>(low.values[i]);
    master[i] = __uint_as_float((static_cast<unsigned>(high.values[i]) << 16U) +
                                static_cast<unsigned>(rest));
  }
}

template <int kVec>
__device__ __forceinline__ void store_master(const Adamw& call, std::int64_t begin,
                                             const float (&master)[kVec]) {
  if (call.master != nullptr) {
    store(call.master + begin, master);
    return;
  }
  using Halves = Pack<std::uint16_t, kVec>;
  Halves high, low;
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    const unsigned bits = __float_as_uint(master[i]);
    const unsigned upper = (bits + 0x8000U) >> 16U;
    high.values[i] = static_cast<std::uint16_t>(upper);
    low.values[i] = static_cast<std::uint16_t>(bits - (upper << 16U));
  }
  *reinterpret_cast<Halves*>(as<std::uint16_t>(call.weight) + begin) = high;
  *reinterpret_cast<Halves*>(call.low + begin) = low;
}

// What differs from step to step.
struct Pace {
  float scale, rate, correction1, correction2;
};

template <class G, int kVec>
__device__ __forceinline__ void update(const Adamw& call, std::int64_t begin, const Pace& pace) {
  float master[kVec], gradient[kVec], first[kVec], second[kVec], decay[kVec];
  load_master(call, begin, master);
  load<kVec>(as<G>(call.gradient) + begin, gradient);
  load(call.first + begin, first);
  load(call.second + begin, second);
  int run = run_of(call, begin);
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    while (run + 1 < call.num_runs && begin + i >= call.runs[run].end) ++run;
    decay[i] = call.runs[run].decay;
  }
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    const float g = gradient[i] * pace.scale;
    first[i] += (1.0F - call.beta1) * (g - first[i]);
    second[i] = call.beta2 * second[i] + (1.0F - call.beta2) * g * g;
    const float spread = sqrtf(second[i]) / pace.correction2 + call.epsilon;
    master[i] -= pace.rate * decay[i] * master[i];
    master[i] -= pace.rate / pace.correction1 * first[i] / spread;
  }
  store_master(call, begin, master);
  store(call.first + begin, first);
  store(call.second + begin, second);
}

template <class G, int kVec>
__global__ void __launch_bounds__(kThreads) step(Adamw call) {
  const float scale = call.scale == nullptr ? 1.0F : *call.scale;
  if (!(fabsf(scale) < INFINITY)) return;
  const Pace pace{scale, call.pace[0], call.pace[1], call.pace[2]};
  const std::int64_t vectors = call.elements / kVec;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (std::int64_t vector = thread; vector < vectors; vector += stride)
    update<G, kVec>(call, vector * kVec, pace);
  const std::int64_t tail = vectors * kVec + thread;
  if (tail < call.elements) update<G, 1>(call, tail, pace);
}

}  // namespace

void adamw(const Adamw& call, Stream stream) {
  if (call.elements == 0) return;
  with_type(call.gradient_type, [&](auto value) {
    using G = decltype(value);
    const auto run = [&](auto vec) {
      constexpr int kVec = decltype(vec)::value;
      const std::int64_t blocks = smaller(ceil_div(call.elements, std::int64_t{kThreads} * kVec),
                                          kBlocksPerProcessor * num_processors());
      launch(step<G, kVec>, dim3(static_cast<unsigned>(larger(blocks, 1))), dim3(kThreads), stream,
             call, "adamw");
    };
    constexpr int kPerThread = kPack<Bf16>;
    if (all_aligned(call.master, call.gradient, call.first, call.second, call.weight, call.low))
      run(std::integral_constant<int, kPerThread>{});
    else
      run(std::integral_constant<int, 1>{});
  });
}

}  // namespace braid::ops::kernels
