#include <ATen/ops/empty.h>

#include "runtime/ops/fused_common.h"

namespace braid::ops::fused {

namespace {

bool takes_logits(const char* operation, const at::Tensor& logits, const at::Tensor& labels) {
  if (!takes(operation, {&logits})) return false;
  if (labels.scalar_type() == at::kLong && labels.is_contiguous()) return true;
  note_fallback(operation, "labels that are not dense int64");
  return false;
}

kernels::Logits call_of(const at::Tensor& logits, const at::Tensor& labels,
                        const Vocabulary& slice) {
  kernels::Logits call;
  call.type = type_of(logits);
  call.logits = memory(logits);
  call.labels = labels.const_data_ptr<std::int64_t>();
  call.ignored = slice.ignored;
  call.rows = logits.size(0);
  call.width = logits.size(1);
  call.real = slice.real;
  call.first = slice.first;
  return call;
}

}  // namespace

std::optional<at::Tensor> cross_entropy(const at::Tensor& logits, const at::Tensor& labels,
                                        const Vocabulary& slice, double scale) {
  if (!reaches(logits) || !takes_logits("cross_entropy", logits, labels)) return std::nullopt;
  at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  kernels::cross_entropy(call_of(logits, labels, slice), static_cast<float>(scale), floats(losses),
                         stream_of(logits));
  return losses;
}

std::optional<SliceStatistics> logits_statistics(const at::Tensor& logits, const at::Tensor& labels,
                                                 const Vocabulary& slice) {
  if (!reaches(logits) || !takes_logits("logits_statistics", logits, labels)) return std::nullopt;
  const at::TensorOptions options = logits.options().dtype(at::kFloat);
  SliceStatistics found{at::empty({logits.size(0)}, options),
                        at::empty({logits.size(0), 2}, options)};
  kernels::logits_statistics(call_of(logits, labels, slice), floats(found.largest),
                             floats(found.sums), stream_of(logits));
  return found;
}

bool logits_gradient(const at::Tensor& logits, const at::Tensor& labels, const Vocabulary& slice,
                     double scale, const at::Tensor& largest, const at::Tensor& sums) {
  if (!reaches(logits) || !takes_logits("logits_gradient", logits, labels) ||
      !takes_floats("logits_gradient", {&largest, &sums}))
    return false;
  kernels::logits_gradient(call_of(logits, labels, slice), static_cast<float>(scale),
                           floats(largest), floats(sums), stream_of(logits));
  return true;
}

}  // namespace braid::ops::fused
