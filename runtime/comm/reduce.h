#pragma once
// Elementwise reduction in the order of ranks. Every backend on CPUs ends here, so that they agree
// to the last bit.

#include <span>

#include "runtime/comm/group.h"

namespace braid::comm {

// out[i] = inputs[0][i] ⊕ inputs[1][i] ⊕ …, from left to right. bf16 is added in fp32 and rounded
// once, to the nearest even. A maximum with a NaN is a NaN. `out` may be one of the inputs.
void reduce_in_order(Reduction reduction, DataType type, std::span<const std::byte* const> inputs,
                     std::byte* out, std::int64_t count);

float from_bf16(std::uint16_t bits);
std::uint16_t to_bf16(float value);

}  // namespace braid::comm
