// Rotary positions on the heads of q, k and v where they lie, or from three tensors into one. The
// halves of a head form the pairs; one thread reads both before it writes, so that it may be in
// place.

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int kSummingBlocks = 3;  // of as many threads, for whose sums a processor has registers

__host__ __device__ __forceinline__ int all_heads(const Rotary& call) {
  std::int64_t heads = 0;
  for (const RotaryPart& part : call.parts) heads += part.heads;
  return static_cast<int>(heads);
}

struct Place {
  int part = 0, head = 0;  // the head among those of its part
};

__device__ __forceinline__ Place place_of(const Rotary& call, int head) {
  Place place{0, head};
#pragma unroll
  for (int p = 0; p + 1 < Rotary::kParts; ++p) {
    const int heads = static_cast<int>(call.parts[p].heads);
    if (place.part != p || place.head < heads) continue;
    place = {p + 1, place.head - heads};
  }
  return place;
}

// A row is one token of one sample. A thread keeps to its columns and goes over its block's rows.
template <class T, int kVec, bool kSums>
__global__ void __launch_bounds__(kThreads, kSums ? kSummingBlocks : 4) turn(Rotary call) {
  const int rows = static_cast<int>(call.tokens * call.batch), batch = static_cast<int>(call.batch);
  const int half = static_cast<int>(call.head_dim) / 2;
  const int packs = half / kVec;  // of half a head
  const int heads = all_heads(call);
  const float direction = call.back ? -1.0F : 1.0F;
  for (int item = static_cast<int>(threadIdx.x); item < heads * packs;
       item += static_cast<int>(blockDim.x)) {
    const int head = item / packs;
    const int column = (item - head * packs) * kVec;
    const Place place = place_of(call, head);
    const RotaryPart& part = call.parts[place.part];
    const T* in = as<T>(part.in) + place.head * part.in_head + column;
    T* out = as<T>(part.out) + place.head * part.out_head + column;
    float left_sums[kVec] = {}, right_sums[kVec] = {};
    for (int row = static_cast<int>(blockIdx.x); row < rows; row += static_cast<int>(gridDim.x)) {
      const int token = row / batch;
      const int sample = row - token * batch;
      const T* from = in + token * part.in_token + sample * part.in_batch;
      T* to = out + token * part.out_token + sample * part.out_batch;
      float left[kVec], right[kVec];
      load<kVec>(from, left);
      load<kVec>(from + half, right);
      if (part.turns) {
        float cos[kVec], sin[kVec];
        load<kVec>(call.cos + static_cast<std::int64_t>(token) * half + column, cos);
        load<kVec>(call.sin + static_cast<std::int64_t>(token) * half + column, sin);
#pragma unroll
        for (int i = 0; i < kVec; ++i) {
          const float l = left[i], r = right[i], s = direction * sin[i];
          left[i] = l * cos[i] - r * s;
          right[i] = r * cos[i] + l * s;
        }
      }
      store<kVec>(to, left);
      store<kVec>(to + half, right);
#pragma unroll
      for (int i = 0; kSums && i < kVec; ++i) {
        left_sums[i] += left[i];
        right_sums[i] += right[i];
      }
    }
    if constexpr (!kSums) continue;
    float* mine = call.partials +
                  (static_cast<std::int64_t>(blockIdx.x) * heads + head) * call.head_dim + column;
    store<kVec>(mine, left_sums);
    store<kVec>(mine + half, right_sums);
  }
}

// Each of a block's threads takes as many packs of a row as the others.
int threads_of(const Rotary& call, int vec) {
  const std::int64_t packs = larger(1, all_heads(call) * (call.head_dim / 2 / vec));
  return whole_warps(ceil_div(packs, ceil_div(packs, kThreads)));
}

bool can_pack(const Rotary& call, int vec) {
  bool can = call.head_dim / 2 % vec == 0 && all_aligned(call.cos, call.sin, call.partials);
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

// As many blocks as a processor holds at once.
std::int64_t rotary_partials(const Rotary& call) {
  const std::int64_t blocks = kSummingBlocks * kThreads / threads_of(call, kPack<Bf16>);
  return smaller(call.tokens * call.batch, blocks * num_processors());
}

void rotary(const Rotary& call, Stream stream) {
  if (call.tokens * call.batch == 0) return;
  with_type(call.type, [&](auto value) {
    using T = decltype(value);
    const auto run = [&](auto vec, auto sums, std::int64_t blocks) {
      constexpr int kVec = decltype(vec)::value;
      launch(turn<T, kVec, decltype(sums)::value>, dim3(static_cast<unsigned>(blocks)),
             dim3(static_cast<unsigned>(threads_of(call, kVec))), stream, call, "rotary");
    };
    const auto with_sums = [&](auto vec) {
      if (call.partials != nullptr)
        run(vec, std::true_type{}, rotary_partials(call));
      else
        run(vec, std::false_type{}, call.tokens * call.batch);
    };
    if (can_pack(call, kPack<T>))
      with_sums(std::integral_constant<int, kPack<T>>{});
    else
      with_sums(std::integral_constant<int, 1>{});
  });
}

}  // namespace braid::ops::kernels
