#pragma once
// What operators count in.

#include <c10/core/ScalarType.h>

namespace braid::ops {

// The precision of statistics and sums over values of a type.
constexpr at::ScalarType wide(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace braid::ops
