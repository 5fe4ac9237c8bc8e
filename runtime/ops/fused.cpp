#include "runtime/ops/fused.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "runtime/ops/fused_common.h"

namespace braid::ops::fused {

bool reaches(const at::Tensor& x) {
  switch (kernels::reach()) {
    case kernels::Reach::nothing:
      return false;
    case kernels::Reach::gpu:
      return x.is_cuda();
    case kernels::Reach::host:
      return x.is_cpu();
  }
  return false;
}

bool takes(const char* operation, std::initializer_list<const at::Tensor*> tensors) {
  const at::ScalarType type = (*tensors.begin())->scalar_type();
  if (!is_known(type)) {
    note_fallback(operation, fmt::format("no kernel for {}", c10::toString(type)));
    return false;
  }
  for (const at::Tensor* x : tensors) {
    if (!x->defined()) continue;
    if (x->scalar_type() != type) {
      note_fallback(operation, fmt::format("{} beside {}", c10::toString(x->scalar_type()),
                                           c10::toString(type)));
      return false;
    }
    if (!x->is_contiguous()) {
      note_fallback(operation, "a tensor is not dense");
      return false;
    }
  }
  return true;
}

bool takes_floats(const char* operation, std::initializer_list<const at::Tensor*> tensors) {
  for (const at::Tensor* x : tensors) {
    if (!x->defined()) continue;
    if (x->scalar_type() == at::kFloat && x->is_contiguous()) continue;
    note_fallback(operation, fmt::format("a sum in {}", c10::toString(x->scalar_type())));
    return false;
  }
  return true;
}

namespace {

bool is_aligned(const at::Tensor& x) {
  constexpr std::uintptr_t kAccess = 16;
  return reinterpret_cast<std::uintptr_t>(memory(x)) % kAccess == 0;
}

bool fits(const char* operation, const at::Tensor& x,
          std::initializer_list<const at::Tensor*> tensors) {
  const std::int64_t width = x.size(-1);
  bool aligned = width % 8 == 0;
  for (const at::Tensor* tensor : tensors) aligned = aligned && is_aligned(*tensor);
  if (width <= kernels::longest_norm(type_of(x), aligned)) return true;
  note_fallback(operation, fmt::format("rows of {}{}", width, aligned ? "" : ", not aligned"));
  return false;
}

}  // namespace

std::optional<at::Tensor> embedding(const at::Tensor& ids, const at::Tensor& table,
                                    std::int64_t first) {
  constexpr const char* kName = "embedding";
  if (!reaches(table) || !takes(kName, {&table})) return std::nullopt;
  if (ids.scalar_type() != at::kLong) {
    note_fallback(kName, fmt::format("ids in {}", c10::toString(ids.scalar_type())));
    return std::nullopt;
  }
  const at::Tensor dense = ids.contiguous();
  std::vector<std::int64_t> sizes = ids.sizes().vec();
  sizes.push_back(table.size(1));
  at::Tensor out = at::empty(sizes, table.options());
  kernels::LookUp call;
  call.type = type_of(table);
  call.table = memory(table);
  call.ids = dense.const_data_ptr<std::int64_t>();
  call.out = memory(out);
  call.tokens = ids.numel();
  call.rows = table.size(0);
  call.width = table.size(1);
  call.first = first;
  kernels::look_up(call, stream_of(table));
  return out;
}

std::optional<Normed> norm(NormKind kind, const at::Tensor& x, const at::Tensor& added,
                           const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  if (!reaches(x)) return std::nullopt;
  const bool rms = kind == NormKind::rms;
  const char* name = rms ? "rms_norm" : "layer_norm";
  if (!takes(name, {&x, &added, &weight, &bias}) || !fits(name, x, {&x, &added, &weight, &bias}))
    return std::nullopt;
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = rms ? 1 : 2;
  Normed normed{at::empty_like(x), at::empty(sizes, x.options().dtype(at::kFloat)), {}};
  if (added.defined()) normed.sum = at::empty_like(x);
  kernels::NormForward call;
  call.type = type_of(x);
  call.x = memory(x);
  call.added = memory(added);
  call.sum = memory(normed.sum);
  call.weight = memory(weight);
  call.bias = memory(bias);
  call.y = memory(normed.y);
  call.statistics = floats(normed.statistics);
  call.rows = rows_of(x);
  call.width = x.size(-1);
  call.epsilon = static_cast<float>(epsilon);
  (rms ? kernels::rms_norm : kernels::layer_norm)(call, stream_of(x));
  return normed;
}

std::optional<NormGradients> norm_backward(NormKind kind, const at::Tensor& dy, const at::Tensor& x,
                                           const at::Tensor& statistics, const at::Tensor& weight,
                                           const BesideNorm& beside) {
  if (!reaches(x)) return std::nullopt;
  const bool rms = kind == NormKind::rms;
  const char* name = rms ? "rms_norm_backward" : "layer_norm_backward";
  const at::Tensor& residual = beside.residual;
  if (!takes(name, {&x, &dy, &weight, &residual, &beside.again, &beside.bias}) ||
      !takes_floats(name, {&statistics}) ||
      !fits(name, x, {&x, &dy, &weight, &residual, &beside.again, &beside.bias}))
    return std::nullopt;
  const std::int64_t rows = rows_of(x), width = x.size(-1);
  NormGradients made{at::empty_like(x),
                     at::empty({kernels::norm_partials(rows, width), (rms ? 1 : 2) * width},
                               statistics.options())};
  kernels::NormBackward call;
  call.type = type_of(x);
  call.dy = memory(dy);
  call.x = memory(x);
  call.statistics = floats(statistics);
  call.weight = memory(weight);
  call.residual = memory(residual);
  call.y = memory(beside.again);
  call.bias = memory(beside.bias);
  call.dx = memory(made.dx);
  call.partials = floats(made.rows);
  call.rows = rows;
  call.width = width;
  (rms ? kernels::rms_norm_backward : kernels::layer_norm_backward)(call, stream_of(x));
  return made;
}

}  // namespace braid::ops::fused
