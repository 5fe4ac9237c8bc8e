#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <cmath>

#include "runtime/ops/fused_common.h"

namespace braid::ops::fused {

bool column_sum(const Sum& gradient, const at::Tensor& x) {
  const at::Tensor& sum = gradient.value;
  if (!reaches(x) || !takes("bias_gradient", {&x}) || !takes("bias_gradient", {&sum})) return false;
  const kernels::Columns columns{type_of(x), memory(x), rows_of(x), x.size(-1)};
  const at::Tensor partials = at::empty({kernels::column_partials(columns), columns.width},
                                        sum.options().dtype(at::kFloat));
  kernels::column_sum(columns, floats(partials), {type_of(sum), memory(sum), gradient.fresh},
                      stream_of(x));
  return true;
}

at::Tensor square_sum(const std::vector<at::Tensor>& parts) {
  if (parts.empty() || !reaches(parts.front())) return {};
  for (const at::Tensor& part : parts)
    if (!takes("gradient_norm", {&part})) return {};
  const std::int64_t each = kernels::square_partials();
  at::Tensor partials = at::empty({static_cast<std::int64_t>(parts.size()), each},
                                  parts.front().options().dtype(at::kDouble));
  auto* next = partials.data_ptr<double>();
  for (const at::Tensor& part : parts) {
    kernels::square_sum(type_of(part), memory(part), part.numel(), next, stream_of(part));
    next += each;
  }
  return at::sum(partials).view({1});
}

at::Tensor adamw_pace(double rate, double beta1, double beta2, std::int64_t step) {
  const auto left = [&](double beta) { return 1 - std::pow(beta, static_cast<double>(step)); };
  at::Tensor pace = at::empty({3}, at::kFloat);
  auto* values = pace.data_ptr<float>();
  values[0] = static_cast<float>(rate);
  values[1] = static_cast<float>(left(beta1));
  values[2] = static_cast<float>(std::sqrt(left(beta2)));
  return pace;
}

bool adamw(const Adamw& step) {
  if (!reaches(step.weight) || !takes("adamw", {&step.gradient}) ||
      !takes_floats("adamw", {&step.first, &step.second, &step.scale, &step.pace}))
    return false;
  const at::ScalarType type = step.low.defined() ? at::kBFloat16 : at::kFloat;
  if (step.weight.scalar_type() != type || !step.weight.is_contiguous()) {
    note_fallback("adamw", fmt::format("weights in {}", c10::toString(step.weight.scalar_type())));
    return false;
  }
  if (step.runs.empty()) return true;
  kernels::Adamw call;
  call.gradient_type = type_of(step.gradient);
  call.scale = floats(step.scale);
  call.pace = floats(step.pace);
  call.beta1 = static_cast<float>(step.beta1);
  call.beta2 = static_cast<float>(step.beta2);
  call.epsilon = static_cast<float>(step.epsilon);
  // As many runs at once as a call holds.
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < step.runs.size();) {
    call.num_runs = 0;
    for (; i < step.runs.size() && call.num_runs < kernels::Adamw::kRuns; ++i)
      call.runs[call.num_runs++] = {step.runs[i].end - begin, step.runs[i].decay};
    const std::int64_t length = call.runs[call.num_runs - 1].end;
    const auto part = [&](const at::Tensor& x) {
      return x.defined() ? x.narrow(0, begin, length).data_ptr() : nullptr;
    };
    if (step.low.defined()) {
      call.weight = part(step.weight);
      call.low = static_cast<std::int16_t*>(part(step.low));
    } else {
      call.master = static_cast<float*>(part(step.weight));
    }
    call.gradient = part(step.gradient);
    call.first = static_cast<float*>(part(step.first));
    call.second = static_cast<float*>(part(step.second));
    call.elements = length;
    kernels::adamw(call, stream_of(step.weight));
    begin += length;
  }
  return true;
}

}  // namespace braid::ops::fused
