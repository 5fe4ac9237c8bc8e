// Softmax cross-entropy on 16-bit logits: losses and gradients without a copy in fp32. A block goes
// over a row twice, and so few blocks run at once that the second time finds the row in the L2
// cache.

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

namespace {

constexpr int kThreads = 512;
constexpr int kAhead = 4;  // packs

// Of some logits: the largest, and the sum of exp(logit - largest).
struct Peak {
  float largest, sum;
};
__device__ __forceinline__ Peak shuffled(Peak value, int distance) {
  return {kernels::shuffled(value.largest, distance), kernels::shuffled(value.sum, distance)};
}

__device__ __forceinline__ Peak nothing() { return {-INFINITY, 0.0F}; }

struct Merge {
  __device__ __forceinline__ Peak operator()(Peak a, Peak b) const {
    const float top = fmaxf(a.largest, b.largest);
    if (top == -INFINITY) return nothing();  // else -inf - -inf would make a NaN
    return {top, a.sum * __expf(a.largest - top) + b.sum * __expf(b.largest - top)};
  }
};

template <int kVec>
__device__ __forceinline__ void count(Peak& peak, const float (&logits)[kVec]) {
  float top = peak.largest;
#pragma unroll
  for (int i = 0; i < kVec; ++i) top = fmaxf(top, logits[i]);
  if (top == -INFINITY) return;
  if (top > peak.largest) {
    peak.sum *= __expf(peak.largest - top);
    peak.largest = top;
  }
#pragma unroll
  for (int i = 0; i < kVec; ++i) peak.sum += __expf(logits[i] - top);
}

// Rows may begin anywhere: single elements up to the first that is aligned, packs, single elements.
// Some packs are read ahead of the first that is used, to keep memory busy.
template <class T, class Packs, class Single>
__device__ __forceinline__ void walk(const T* row, int length, Packs packs, Single single) {
  constexpr int kVec = kPack<T>;
  const auto bytes = reinterpret_cast<std::uintptr_t>(row) % kAccess;
  int head = bytes == 0 ? 0 : static_cast<int>((kAccess - bytes) / sizeof(T));
  if (head > length) head = length;
  const int whole = (length - head) / kVec;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < head) single(thread);
  int pack = thread;
  for (; pack + (kAhead - 1) * kThreads < whole; pack += kAhead * kThreads) {
    uint4 read[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      read[i] = load_packed(row + head + (pack + i * kThreads) * kVec);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) packs(head + (pack + i * kThreads) * kVec, read[i]);
  }
  for (; pack < whole; pack += kThreads)
    packs(head + pack * kVec, load_packed(row + head + pack * kVec));
  const int tail = head + whole * kVec + thread;
  if (tail < length) single(tail);
}

template <class T>
__device__ __forceinline__ Peak peak_of(const T* row, int real, Rooms<Peak>& rooms, int& turn) {
  Peak peak = nothing();
  walk(
      row, real,
      [&](int, const uint4& pack) {
        float values[kPack<T>];
        unpack(pack, values);
        count(peak, values);
      },
      [&](int at) {
        const float values[1] = {to_float(row[at])};
        count(peak, values);
      });
  return block_merged(peak, nothing(), Merge{}, rooms, turn);
}

// factor · exp(logit - largest), less `scale` at the label; zeros where factor is 0 and in padding.
template <class T>
__device__ __forceinline__ void write_gradient(T* row, const Logits& call, int label, float largest,
                                               float factor, float scale) {
  const int real = static_cast<int>(call.real);
  const auto gradient = [&](int at, float logit) {
    if (factor == 0.0F || at >= real) return 0.0F;
    return factor * __expf(logit - largest) - (at == label ? scale : 0.0F);
  };
  walk(
      row, static_cast<int>(call.width),
      [&](int at, const uint4& pack) {
        float values[kPack<T>];
        unpack(pack, values);
        const int label_here = label - at;
        if (factor != 0.0F && at + kPack<T> <= real) {
#pragma unroll
          for (int i = 0; i < kPack<T>; ++i)
            values[i] = factor * __expf(values[i] - largest) - (i == label_here ? scale : 0.0F);
        } else {
#pragma unroll
          for (int i = 0; i < kPack<T>; ++i) values[i] = gradient(at + i, values[i]);
        }
        store(row + at, values);
      },
      [&](int at) { row[at] = from_float<T>(gradient(at, to_float(row[at]))); });
}

// Where in a slice the label of a row is; -1: elsewhere, or the row does not count.
__device__ __forceinline__ int label_in(const Logits& call, std::int64_t row) {
  const std::int64_t label = call.labels[row] - call.first;
  const bool here = call.labels[row] != call.ignored && label >= 0 && label < call.real;
  return here ? static_cast<int>(label) : -1;
}

struct Whole {
  Logits call;
  float scale = 1;
  float* losses = nullptr;
};

template <class T>
__global__ void __launch_bounds__(kThreads) whole_rows(Whole whole) {
  __shared__ Rooms<Peak> rooms;
  int turn = 0;
  const Logits& call = whole.call;
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    T* logits = as<T>(call.logits) + row * call.width;
    const bool counts = call.labels[row] != call.ignored;
    const int label = label_in(call, row);
    const float at_label = label >= 0 ? to_float(logits[label]) : 0.0F;
    // Also the barrier after which the label's logit may be overwritten.
    const Peak peak = peak_of(logits, static_cast<int>(call.real), rooms, turn);
    if (threadIdx.x == 0)
      whole.losses[row] =
          counts ? logf(peak.sum) - (label >= 0 ? at_label - peak.largest : 0.0F) : 0.0F;
    write_gradient(logits, call, label, peak.largest, counts ? whole.scale / peak.sum : 0.0F,
                   whole.scale);
  }
}

struct Statistics {
  Logits call;
  float* largest = nullptr;
  float* sums = nullptr;
};

template <class T>
__global__ void __launch_bounds__(kThreads) row_statistics(Statistics statistics) {
  __shared__ Rooms<Peak> rooms;
  int turn = 0;
  const Logits& call = statistics.call;
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    const T* logits = as<T>(call.logits) + row * call.width;
    const Peak peak = peak_of(logits, static_cast<int>(call.real), rooms, turn);
    if (threadIdx.x != 0) continue;
    const int label = label_in(call, row);
    statistics.largest[row] = peak.largest;
    statistics.sums[2 * row] = peak.sum;
    statistics.sums[2 * row + 1] = label >= 0 ? to_float(logits[label]) - peak.largest : 0.0F;
  }
}

struct Gradient {
  Logits call;
  float scale = 1;
  const float* largest = nullptr;
  const float* sums = nullptr;
};

template <class T>
__global__ void __launch_bounds__(kThreads) row_gradients(Gradient gradient) {
  const Logits& call = gradient.call;
  for (std::int64_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    const bool counts = call.labels[row] != call.ignored;
    write_gradient(as<T>(call.logits) + row * call.width, call, label_in(call, row),
                   gradient.largest[row], counts ? gradient.scale / gradient.sums[2 * row] : 0.0F,
                   gradient.scale);
  }
}

// As many blocks as keep their rows in the L2 cache, two to four a processor: one alone would wait
// at its barriers.
unsigned blocks_of(const Logits& call) {
  const std::int64_t row = call.width * (call.type == Type::bf16 ? 2 : 4);
  const std::int64_t cached = device_attribute(cudaDevAttrL2CacheSize) / larger(row, 1);
  const std::int64_t per = larger(2, smaller(4, cached / num_processors()));
  return static_cast<unsigned>(smaller(call.rows, per * num_processors()));
}

}  // namespace

void cross_entropy(const Logits& call, float scale, float* losses, Stream stream) {
  if (call.rows == 0) return;
  with_type(call.type, [&](auto value) {
    launch(whole_rows<decltype(value)>, dim3(blocks_of(call)), dim3(kThreads), stream,
           Whole{call, scale, losses}, "cross-entropy");
  });
}

void logits_statistics(const Logits& call, float* largest, float* sums, Stream stream) {
  if (call.rows == 0) return;
  with_type(call.type, [&](auto value) {
    launch(row_statistics<decltype(value)>, dim3(blocks_of(call)), dim3(kThreads), stream,
           Statistics{call, largest, sums}, "logits' statistics");
  });
}

void logits_gradient(const Logits& call, float scale, const float* largest, const float* sums,
                     Stream stream) {
  if (call.rows == 0) return;
  with_type(call.type, [&](auto value) {
    launch(row_gradients<decltype(value)>, dim3(blocks_of(call)), dim3(kThreads), stream,
           Gradient{call, scale, largest, sums}, "logits' gradient");
  });
}

}  // namespace braid::ops::kernels
