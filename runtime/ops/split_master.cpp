#include "runtime/ops/split_master.h"

#include <ATen/ops/empty.h>

namespace braid::ops {

void split_master(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& low) {
  if (master.is_meta()) return;
  const at::Tensor bits = master.view(at::kInt);
  const at::Tensor high = bits.add(0x8000).bitwise_right_shift(16);
  weight.view(at::kShort).copy_(high);
  low.copy_(bits.sub(high.bitwise_left_shift(16)));
}

at::Tensor join_master(const at::Tensor& weight, const at::Tensor& low) {
  if (weight.is_meta()) return at::empty(weight.sizes(), weight.options().dtype(at::kFloat));
  return weight.view(at::kShort).to(at::kInt).bitwise_left_shift(16).add_(low).view(at::kFloat);
}

}  // namespace braid::ops
