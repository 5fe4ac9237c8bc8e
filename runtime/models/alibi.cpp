#include "runtime/models/alibi.h"

#include <ATen/ops/empty.h>

#include <bit>
#include <cmath>

namespace braid::models {

at::Tensor alibi_slopes(std::int64_t heads) {
  at::Tensor slopes = at::empty({heads}, at::kDouble);
  auto* slope = slopes.data_ptr<double>();
  const auto whole = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  const auto of = [](std::int64_t number, std::int64_t count) {
    return std::exp2(-8.0 * static_cast<double>(number) / static_cast<double>(count));
  };
  for (std::int64_t i = 0; i < whole; ++i) *slope++ = of(i + 1, whole);
  for (std::int64_t i = 0; i < heads - whole; ++i) *slope++ = of(2 * i + 1, 2 * whole);
  return slopes;
}

}  // namespace braid::models
