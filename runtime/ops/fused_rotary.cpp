#include <ATen/ops/empty.h>

#include "runtime/ops/fused_common.h"

namespace braid::ops::fused {

namespace {

bool takes_heads(const char* operation, std::initializer_list<const at::Tensor*> heads) {
  for (const at::Tensor* x : heads) {
    if (!is_known(x->scalar_type()) || x->scalar_type() != (*heads.begin())->scalar_type()) {
      note_fallback(operation, fmt::format("no kernel for {}", c10::toString(x->scalar_type())));
      return false;
    }
    if (x->stride(-1) != 1) {
      note_fallback(operation, "the values of a head are apart");
      return false;
    }
  }
  return true;
}

kernels::RotaryPart part_of(const at::Tensor& in, const at::Tensor& out, bool turns) {
  kernels::RotaryPart part;
  part.in = memory(in);
  part.in_token = in.stride(0);
  part.in_batch = in.stride(1);
  part.in_head = in.stride(2);
  part.out = memory(out);
  part.out_token = out.stride(0);
  part.out_batch = out.stride(1);
  part.out_head = out.stride(2);
  part.heads = in.size(2);
  part.turns = turns;
  return part;
}

kernels::Rotary call_of(const at::Tensor& heads, const RotaryTable* table, bool back) {
  kernels::Rotary call;
  call.type = type_of(heads);
  if (table != nullptr) {
    call.cos = floats(table->cos);
    call.sin = floats(table->sin);
  }
  call.tokens = heads.size(0);
  call.batch = heads.size(1);
  call.head_dim = heads.size(3);
  call.back = back;
  return call;
}

}  // namespace

bool rotary_in_place(const at::Tensor& qkv, const PackedHeads& heads, const RotaryTable& table) {
  if (!reaches(qkv) || !takes_heads("rotary", {&qkv}) ||
      !takes_floats("rotary", {&table.cos, &table.sin}))
    return false;
  kernels::Rotary call = call_of(qkv, &table, false);
  // q's and k's heads are neighbours, and are turned alike.
  const at::Tensor turned = qkv.narrow(2, 0, heads.q + heads.kv);
  call.parts[0] = part_of(turned, turned, true);
  kernels::rotary(call, stream_of(qkv));
  return true;
}

std::optional<PackedGradient> packed_heads(const QkvHeads& gradients, const RotaryTable* table,
                                           bool wants_few_rows) {
  const auto& [dq, dk, dv] = gradients;
  const char* operation = table != nullptr ? "rotary_backward" : "heads_backward";
  if (!reaches(dq) || !takes_heads(operation, {&dq, &dk, &dv})) return std::nullopt;
  if (table != nullptr && !takes_floats(operation, {&table->cos, &table->sin})) return std::nullopt;
  const std::int64_t q = dq.size(2), kv = dk.size(2), head_dim = dq.size(3);
  if (head_dim % 2 != 0) {
    note_fallback(operation, "the kernel moves halves of heads, and their width is odd");
    return std::nullopt;
  }
  at::Tensor packed = at::empty({dq.size(0), dq.size(1), q + 2 * kv, head_dim}, dq.options());
  kernels::Rotary call = call_of(packed, table, true);
  const bool turns = table != nullptr;
  call.parts[0] = part_of(dq, packed.narrow(2, 0, q), turns);
  call.parts[1] = part_of(dk, packed.narrow(2, q, kv), turns);
  call.parts[2] = part_of(dv, packed.narrow(2, q + kv, kv), false);
  PackedGradient made{packed.flatten(2), packed.flatten(2)};
  if (wants_few_rows) {
    made.rows = at::empty({kernels::rotary_partials(call), made.dqkv.size(2)},
                          dq.options().dtype(at::kFloat));
    call.partials = floats(made.rows);
  }
  kernels::rotary(call, stream_of(dq));
  return made;
}

}  // namespace braid::ops::fused
