#pragma once
// Tables of costs between the states of two operators, and their (min,+) products. Costs are whole
// ticks, so that sums do not depend on their order and the best is the best exactly.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid {

template <class T>
class CostTable {
 public:
  CostTable() = default;
  CostTable(std::size_t rows, std::size_t columns, T fill = 0)
      : rows_(rows), columns_(columns), values_(rows * columns, fill) {}

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_; }
  T& operator()(std::size_t row, std::size_t column) { return values_[row * columns_ + column]; }
  T operator()(std::size_t row, std::size_t column) const {
    return values_[row * columns_ + column];
  }
  T* row(std::size_t r) { return values_.data() + r * columns_; }
  const T* row(std::size_t r) const { return values_.data() + r * columns_; }
  bool operator==(const CostTable&) const = default;

 private:
  std::size_t rows_ = 0, columns_ = 0;
  std::vector<T> values_;
};

using Ticks = std::int32_t;
using Table32 = CostTable<Ticks>;
using Table64 = CostTable<std::int64_t>;

// result(i, j) = min over k of a(i, k) + b(k, j). Sums must fit the type.
Table32 min_plus(const Table32& a, const Table32& b);
Table64 min_plus(const Table64& a, const Table64& b);

// The table of `exponent` ≥ 1 equal links in a row, by squaring.
Table64 min_plus_power(const Table64& link, int exponent);

}  // namespace braid
