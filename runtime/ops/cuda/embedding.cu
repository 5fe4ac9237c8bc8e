// Rows of a table by their numbers.

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

namespace {

constexpr int kThreads = 256;

// A block copies one row at a time.
template <class T, int kVec>
__global__ void __launch_bounds__(kThreads) look_up(LookUp call) {
  const std::int64_t vectors = call.width / kVec;
  for (std::int64_t token = blockIdx.x; token < call.tokens; token += gridDim.x) {
    const std::int64_t row = call.ids[token] - call.first;
    const bool here = row >= 0 && row < call.rows;
    const T* from = as<T>(call.table) + row * call.width;
    T* to = as<T>(call.out) + token * call.width;
    for (std::int64_t vector = threadIdx.x; vector < vectors; vector += blockDim.x) {
      float values[kVec] = {};
      if (here) load<kVec>(from + vector * kVec, values);
      store<kVec>(to + vector * kVec, values);
    }
  }
}

}  // namespace

void look_up(const LookUp& call, Stream stream) {
  if (call.tokens == 0 || call.width == 0) return;
  const auto blocks = static_cast<unsigned>(smaller(call.tokens, std::int64_t{1} << 30));
  with_type(call.type, [&](auto value) {
    using T = decltype(value);
    const auto run = [&](auto vec) {
      constexpr int kVec = decltype(vec)::value;
      const std::int64_t threads = smaller(kThreads, ceil_div(call.width, kVec));
      launch(look_up<T, kVec>, dim3(blocks), dim3(static_cast<unsigned>(whole_warps(threads))),
             stream, call, "embedding");
    };
    if (call.width % kPack<T> == 0 && all_aligned(call.table, call.out))
      run(std::integral_constant<int, kPack<T>>{});
    else
      run(std::integral_constant<int, 1>{});
  });
}

}  // namespace braid::ops::kernels
