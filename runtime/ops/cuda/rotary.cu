// Rotary positions on the heads of q, k and v where they lie, or from three tensors into one. The
// halves of a head form the pairs; one thread reads both before it writes, so that it may be in
// place.

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

namespace {

constexpr int kThreads = 256;

// A block is one token of one sample.
template <class T, int kVec>
__global__ void __launch_bounds__(kThreads) turn(Rotary call) {
  const std::int64_t token = blockIdx.x / call.batch;
  const std::int64_t sample = blockIdx.x % call.batch;
  const int half = static_cast<int>(call.head_dim) / 2;
  const int packs = half / kVec;  // of half a head
  const float direction = call.back ? -1.0F : 1.0F;
#pragma unroll
  for (int p = 0; p < Rotary::kParts; ++p) {
    const RotaryPart& part = call.parts[p];
    const T* in = as<T>(part.in) + token * part.in_token + sample * part.in_batch;
    T* out = as<T>(part.out) + token * part.out_token + sample * part.out_batch;
    const int items = static_cast<int>(part.heads) * packs;
    for (int item = static_cast<int>(threadIdx.x); item < items; item += kThreads) {
      const int head = item / packs;
      const int column = (item - head * packs) * kVec;
      const T* from = in + head * part.in_head + column;
      T* to = out + head * part.out_head + column;
      float left[kVec], right[kVec];
      load<kVec>(from, left);
      load<kVec>(from + half, right);
      if (part.turns) {
        float cos[kVec], sin[kVec];
        load_floats(call.cos + token * half + column, cos);
        load_floats(call.sin + token * half + column, sin);
#pragma unroll
        for (int i = 0; i < kVec; ++i) {
          const float l = left[i], r = right[i], s = direction * sin[i];
          left[i] = l * cos[i] - r * s;
          right[i] = r * cos[i] + l * s;
        }
      }
      store<kVec>(to, left);
      store<kVec>(to + half, right);
    }
  }
}

bool can_pack(const Rotary& call, int vec) {
  bool can = call.head_dim / 2 % vec == 0 && all_aligned(call.cos, call.sin);
  for (const RotaryPart& part : call.parts) {
    if (part.heads == 0) continue;
    can = can && all_aligned(part.in, part.out);
    for (const std::int64_t stride : {part.in_token, part.in_batch, part.in_head, part.out_token,
                                      part.out_batch, part.out_head})
      can = can && stride % vec == 0;
  }
  return can;
}

}  // namespace

void rotary(const Rotary& call, Stream stream) {
  if (call.tokens * call.batch == 0) return;
  with_type(call.type, [&](auto value) {
    using T = decltype(value);
    const auto run = [&](auto vec) {
      launch(turn<T, decltype(vec)::value>, dim3(static_cast<unsigned>(call.tokens * call.batch)),
             dim3(kThreads), stream, call, "rotary");
    };
    if (can_pack(call, kPack<T>))
      run(std::integral_constant<int, kPack<T>>{});
    else
      run(std::integral_constant<int, 1>{});
  });
}

}  // namespace braid::ops::kernels
