// SwiGLU, GELU and their like: one pass forward, one pass backward. Curves are counted in fp32 and
// rounded once.

#include "runtime/ops/cuda/device.cuh"

namespace braid::ops::kernels {

namespace {

constexpr int kThreads = 128;  // of a block: so few that a row's end leaves few of them idle
constexpr std::int64_t kMostGridRows = 65535;

struct Point {
  float value, slope;
};

// The hardware's exponential and quotient: their error of 1e-6 is far below bf16's.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0F, 1.0F + __expf(-x)); }
__device__ __forceinline__ float fast_tanh(float x) {
  return 1.0F - __fdividef(2.0F, 1.0F + __expf(2.0F * x));
}

template <Curve kCurve>
__device__ __forceinline__ Point curve_at(float x) {
  if constexpr (kCurve == Curve::silu) {
    const float s = sigmoid(x);
    return {x * s, s * (1.0F + x * (1.0F - s))};
  } else if constexpr (kCurve == Curve::gelu_tanh) {
    constexpr float kSlope = 0.7978845608028654F;  // sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    const float t = fast_tanh(kSlope * (x + kCubic * x * x * x));
    const float half = 0.5F * (1.0F + t);
    return {x * half, half + 0.5F * x * (1.0F - t * t) * kSlope * (1.0F + 3.0F * kCubic * x * x)};
  } else {
    constexpr float kInverseRoot2 = 0.7071067811865476F;
    constexpr float kInverseRoot2Pi = 0.3989422804014327F;
    const float half = 0.5F * (1.0F + erff(x * kInverseRoot2));
    return {x * half, half + x * kInverseRoot2Pi * __expf(-0.5F * x * x)};
  }
}

// x of a pack of columns, with its bias.
template <class T, int kVec>
__device__ __forceinline__ void load_biased(const Activate& call, std::int64_t row_begin,
                                            std::int64_t column, float (&to)[kVec]) {
  load<kVec>(as<T>(call.x) + row_begin + column, to);
  if (call.bias == nullptr) return;
  float bias[kVec];
  load<kVec>(as<T>(call.bias) + column, bias);
#pragma unroll
  for (int i = 0; i < kVec; ++i) to[i] += bias[i];
}

template <class T, int kVec, Curve kCurve, bool kGated>
__global__ void __launch_bounds__(kThreads) forward(Activate call) {
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec;
  if (column >= call.width) return;
  for (std::int64_t row = blockIdx.y; row < call.rows; row += gridDim.y) {
    const std::int64_t begin = row * call.width * (kGated ? 2 : 1);
    float x[kVec], up[kVec];
    load_biased<T>(call, begin, column, x);
    if constexpr (kGated) load_biased<T>(call, begin, call.width + column, up);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      x[i] = curve_at<kCurve>(x[i]).value;
      if constexpr (kGated) x[i] *= up[i];
    }
    store<kVec>(as<T>(call.y) + row * call.width + column, x);
  }
}

template <class T, int kVec, Curve kCurve, bool kGated>
__global__ void __launch_bounds__(kThreads) backward(ActivateBackward back) {
  const Activate& call = back.call;
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec;
  if (column >= call.width) return;
  float sums[kVec] = {}, up_sums[kVec] = {};
  for (std::int64_t row = blockIdx.y; row < call.rows; row += gridDim.y) {
    const std::int64_t begin = row * call.width * (kGated ? 2 : 1);
    float dy[kVec], x[kVec], up[kVec], y[kVec];
    load<kVec>(as<T>(back.dy) + row * call.width + column, dy);
    load_biased<T>(call, begin, column, x);
    if constexpr (kGated) load_biased<T>(call, begin, call.width + column, up);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      const Point point = curve_at<kCurve>(x[i]);
      const float gain = kGated ? up[i] : 1.0F;
      x[i] = dy[i] * gain * point.slope;
      y[i] = point.value * gain;
      sums[i] += x[i];
      if constexpr (kGated) {
        up[i] = dy[i] * point.value;
        up_sums[i] += up[i];
      }
    }
    store<kVec>(as<T>(back.dx) + begin + column, x);
    if constexpr (kGated) store<kVec>(as<T>(back.dx) + begin + call.width + column, up);
    if (call.y != nullptr) store<kVec>(as<T>(call.y) + row * call.width + column, y);
  }
  if (back.partials == nullptr) return;
  float* mine = back.partials + blockIdx.y * call.width * (kGated ? 2 : 1);
  store(mine + column, sums);
  if constexpr (kGated) store(mine + call.width + column, up_sums);
}

// Calls body with the type, the pack, the curve and the gate as types.
template <class Body>
void with_shape(const Activate& call, bool aligned, Body body) {
  with_type(call.type, [&](auto value) {
    using T = decltype(value);
    const auto with_curve = [&](auto vec, auto gated) {
      switch (call.curve) {
        case Curve::gelu:
          return body(value, vec, std::integral_constant<Curve, Curve::gelu>{}, gated);
        case Curve::gelu_tanh:
          return body(value, vec, std::integral_constant<Curve, Curve::gelu_tanh>{}, gated);
        case Curve::silu:
          return body(value, vec, std::integral_constant<Curve, Curve::silu>{}, gated);
      }
    };
    const auto with_gate = [&](auto vec) {
      if (call.gated)
        with_curve(vec, std::true_type{});
      else
        with_curve(vec, std::false_type{});
    };
    if (aligned && call.width % kPack<T> == 0)
      with_gate(std::integral_constant<int, kPack<T>>{});
    else
      with_gate(std::integral_constant<int, 1>{});
  });
}

dim3 grid_of(const Activate& call, int vec, std::int64_t rows) {
  return dim3(static_cast<unsigned>(ceil_div(call.width, std::int64_t{kThreads} * vec)),
              static_cast<unsigned>(rows));
}

}  // namespace

void activate(const Activate& call, Stream stream) {
  if (call.rows == 0 || call.width == 0) return;
  with_shape(call, all_aligned(call.x, call.bias, call.y),
             [&](auto value, auto vec, auto curve, auto gated) {
               launch(forward<decltype(value), decltype(vec)::value, decltype(curve)::value,
                              decltype(gated)::value>,
                      grid_of(call, decltype(vec)::value, smaller(call.rows, kMostGridRows)),
                      dim3(kThreads), stream, call, "activation");
             });
}

// Enough to fill the device.
std::int64_t activate_partials(const Activate& call) {
  // As many as a processor has registers for, 64 a thread at most: none waits for another to end.
  constexpr std::int64_t kBlocksPerProcessor = 1024 / kThreads;
  const std::int64_t stripes = ceil_div(call.width, std::int64_t{kThreads} * kPack<Bf16>);
  return smaller(call.rows, ceil_div(kBlocksPerProcessor * num_processors(), larger(stripes, 1)));
}

void activate_backward(const ActivateBackward& back, Stream stream) {
  const Activate& call = back.call;
  if (call.rows == 0 || call.width == 0) return;
  const std::int64_t rows =
      back.partials == nullptr ? smaller(call.rows, kMostGridRows) : activate_partials(call);
  with_shape(call, all_aligned(call.x, call.bias, call.y, back.dy, back.dx, back.partials),
             [&](auto value, auto vec, auto curve, auto gated) {
               launch(backward<decltype(value), decltype(vec)::value, decltype(curve)::value,
                               decltype(gated)::value>,
                      grid_of(call, decltype(vec)::value, rows), dim3(kThreads), stream, back,
                      "activation backward");
             });
}

}  // namespace braid::ops::kernels
