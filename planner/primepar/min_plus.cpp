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

// Four rows of b at once, so that a result is loaded and stored a quarter as often.
template <class T>
[[gnu::always_inline]] inline void combine(T* __restrict out, const T* __restrict b0,
                                           const T* __restrict b1, const T* __restrict b2,
                                           const T* __restrict b3, T a0, T a1, T a2, T a3,
                                           std::size_t count) {
  for (std::size_t j = 0; j < count; ++j) {
    const T first = std::min<T>(a0 + b0[j], a1 + b1[j]);
    const T second = std::min<T>(a2 + b2[j], a3 + b3[j]);
    out[j] = std::min(out[j], std::min(first, second));
  }
}

template <class T>
[[gnu::always_inline]] inline void multiply(const Operands<T>& x) {
  const std::size_t depth = x.a.columns();
  for (std::size_t j = 0; j < x.b.columns(); j += kTileColumns) {
    const std::size_t count = std::min(kTileColumns, x.b.columns() - j);
    for (std::size_t k = 0; k < depth; k += kTileDepth) {
      const std::size_t end = std::min(k + kTileDepth, depth);
      for (std::size_t i = 0; i < x.a.rows(); ++i) {
        const T* a = x.a.row(i);
        T* out = x.result.row(i) + j;
        std::size_t m = k;
        for (; m + 4 <= end; m += 4)
          combine(out, x.b.row(m) + j, x.b.row(m + 1) + j, x.b.row(m + 2) + j, x.b.row(m + 3) + j,
                  a[m], a[m + 1], a[m + 2], a[m + 3], count);
        for (; m < end; ++m) {
          const T* b = x.b.row(m) + j;
          combine(out, b, b, b, b, a[m], a[m], a[m], a[m], count);
        }
      }
    }
  }
}

#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2")]] void multiply_avx2(const Operands<T>& x) {
  multiply(x);
}
template <class T>
[[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")]] void multiply_avx512(
    const Operands<T>& x) {
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
