#include "planner/primepar/min_plus.h"

#include <algorithm>
#include <limits>

#include "planner/core/error.h"

namespace braid {

namespace {

// A tile of b stays in the second-level cache while every row of a passes over it.
constexpr std::size_t kTileColumns = 512;
constexpr std::size_t kTileDepth = 64;

template <class T>
struct Operands {
  const CostTable<T>& a;
  const CostTable<T>& b;
  CostTable<T>& result;
};

// The best over four rows of b, each behind its cost in a.
template <class T>
[[gnu::always_inline]] inline T best(T before, const T* a, T b0, T b1, T b2, T b3) {
  return std::min(before,
                  std::min(std::min<T>(a[0] + b0, a[1] + b1), std::min<T>(a[2] + b2, a[3] + b3)));
}

// Four rows of b, `stride` apart, against one row of a and its result.
template <class T>
[[gnu::always_inline]] inline void one_row(T* __restrict out, const T* a, const T* __restrict b,
                                           std::size_t stride, std::size_t count) {
  for (std::size_t j = 0; j < count; ++j)
    out[j] = best(out[j], a, b[j], b[j + stride], b[j + 2 * stride], b[j + 3 * stride]);
}

// The same for four rows of a: what is loaded of b is used four times.
template <class T>
[[gnu::always_inline]] inline void four_rows(T* __restrict out0, T* __restrict out1,
                                             T* __restrict out2, T* __restrict out3, const T* a,
                                             std::size_t depth, const T* __restrict b,
                                             std::size_t stride, std::size_t count) {
  T c[4][4];  // out of the loop: the compiler cannot know that a and out are apart
  for (std::size_t i = 0; i < 4; ++i) std::copy(a + i * depth, a + i * depth + 4, c[i]);
  for (std::size_t j = 0; j < count; ++j) {
    const T b0 = b[j], b1 = b[j + stride], b2 = b[j + 2 * stride], b3 = b[j + 3 * stride];
    out0[j] = best(out0[j], c[0], b0, b1, b2, b3);
    out1[j] = best(out1[j], c[1], b0, b1, b2, b3);
    out2[j] = best(out2[j], c[2], b0, b1, b2, b3);
    out3[j] = best(out3[j], c[3], b0, b1, b2, b3);
  }
}

// Depths from k to end, a multiple of four of them, over one tile of columns.
template <class T>
[[gnu::always_inline]] inline void multiply_tile(const Operands<T>& x, std::size_t j,
                                                 std::size_t count, std::size_t k,
                                                 std::size_t end) {
  const std::size_t rows = x.a.rows(), stride = x.b.columns();
  std::size_t i = 0;
  for (; i + 4 <= rows; i += 4)
    for (std::size_t m = k; m < end; m += 4)
      four_rows(x.result.row(i) + j, x.result.row(i + 1) + j, x.result.row(i + 2) + j,
                x.result.row(i + 3) + j, x.a.row(i) + m, x.a.columns(), x.b.row(m) + j, stride,
                count);
  for (; i < rows; ++i)
    for (std::size_t m = k; m < end; m += 4)
      one_row(x.result.row(i) + j, x.a.row(i) + m, x.b.row(m) + j, stride, count);
}

template <class T>
[[gnu::always_inline]] inline void multiply(const Operands<T>& x) {
  const std::size_t even = x.a.columns() / 4 * 4;
  for (std::size_t j = 0; j < x.b.columns(); j += kTileColumns) {
    const std::size_t count = std::min(kTileColumns, x.b.columns() - j);
    for (std::size_t k = 0; k < even; k += kTileDepth)
      multiply_tile(x, j, count, k, std::min(k + kTileDepth, even));
  }
  for (std::size_t k = even; k < x.a.columns(); ++k)
    for (std::size_t i = 0; i < x.a.rows(); ++i) {
      const T before = x.a(i, k);
      const T* b = x.b.row(k);
      T* out = x.result.row(i);
      for (std::size_t j = 0; j < x.b.columns(); ++j) out[j] = std::min<T>(out[j], before + b[j]);
    }
}

#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2")]] void multiply_avx2(const Operands<T>& x) {
  multiply(x);
}
template <class T>
[[gnu::target("avx512f,avx512vl,avx512dq,avx512bw")]] void multiply_avx512(const Operands<T>& x) {
  multiply(x);
}

template <class T>
void multiply_best(const Operands<T>& x) {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    return multiply_avx512(x);
  if (__builtin_cpu_supports("avx2")) return multiply_avx2(x);
  multiply(x);
}
#else
template <class T>
void multiply_best(const Operands<T>& x) {
  multiply(x);
}
#endif

template <class T>
CostTable<T> product(const CostTable<T>& a, const CostTable<T>& b) {
  internal_check(a.columns() == b.rows(), "the tables share an operator");
  CostTable<T> result(a.rows(), b.columns(), std::numeric_limits<T>::max());
  multiply_best(Operands<T>{a, b, result});
  return result;
}

}  // namespace

Table32 min_plus(const Table32& a, const Table32& b) { return product(a, b); }
Table64 min_plus(const Table64& a, const Table64& b) { return product(a, b); }

Table64 min_plus_power(const Table64& link, int exponent) {
  internal_check(exponent >= 1, "a power has at least one link");
  if (exponent == 1) return link;
  const Table64 half = min_plus_power(link, exponent / 2);
  Table64 whole = min_plus(half, half);
  return exponent % 2 == 0 ? whole : min_plus(whole, link);
}

}  // namespace braid
