#include "runtime/train/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "planner/core/error.h"
#include "runtime/ops/fused.h"
#include "runtime/ops/timed.h"
#include "runtime/parallel/collectives.h"

namespace braid::train {

using parallel::ElementRun;
using parallel::FlatBuffer;

namespace {

// This rank's gradients that count towards the norm.
std::vector<at::Tensor> counted_gradients(std::span<FlatBuffer* const> buffers) {
  std::vector<at::Tensor> parts;
  for (const FlatBuffer* buffer : buffers) {
    const at::Tensor gradients = buffer->owned_gradients();
    const std::int64_t first = buffer->owned_begin();
    std::int64_t begin = 0, end = 0;  // of neighbouring runs
    const auto add = [&] {
      if (begin < end) parts.push_back(gradients.narrow(0, begin - first, end - begin));
    };
    for (const ElementRun& run : buffer->owned()) {
      if (!buffer->counts(run)) continue;
      if (run.begin != end) {
        add();
        begin = run.begin;
      }
      end = run.end;
    }
    add();
  }
  return parts;
}

at::Tensor squares_one_by_one(std::span<FlatBuffer* const> buffers) {
  at::Tensor squares;
  for (const FlatBuffer* buffer : buffers) {
    const at::Tensor gradients = buffer->owned_gradients();
    if (!squares.defined()) squares = at::zeros({1}, gradients.options().dtype(at::kDouble));
    for (const ElementRun& run : buffer->owned()) {
      if (!buffer->counts(run)) continue;
      const at::Tensor part =
          gradients.narrow(0, run.begin - buffer->owned_begin(), run.end - run.begin);
      squares.add_(part.square().sum(at::kDouble));
    }
  }
  return squares;
}

void step_elements(const FlatBuffer& buffer, const at::Tensor& master, const AdamW& adamw,
                   double learning_rate, std::int64_t step, double gradient_scale) {
  at::Tensor gradients = buffer.owned_gradients();
  if (gradient_scale != 1) gradients.mul_(gradient_scale);
  if (gradients.scalar_type() != master.scalar_type()) gradients = gradients.to(master.dtype());
  // Two lists, with and without weight decay; ATen's kernel takes a whole list at once.
  for (const bool decays : {false, true}) {
    std::vector<at::Tensor> weights, slopes, first, second, steps;
    for (const ElementRun& run : buffer.owned()) {
      if (run.decays != decays) continue;
      const auto part = [&](const at::Tensor& flat) {
        return flat.narrow(0, run.begin - buffer.owned_begin(), run.end - run.begin);
      };
      weights.push_back(part(master));
      slopes.push_back(part(gradients));
      first.push_back(part(buffer.first_moment()));
      second.push_back(part(buffer.second_moment()));
      steps.push_back(at::full({}, static_cast<double>(step), master.options().dtype(at::kFloat)));
    }
    if (weights.empty()) continue;
    at::_fused_adamw_(weights, slopes, first, second, {}, steps, learning_rate, adamw.beta1,
                      adamw.beta2, decays ? adamw.weight_decay : 0.0, adamw.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
}

}  // namespace

at::Tensor gradient_squares(std::span<FlatBuffer* const> buffers, comm::Group& world) {
  const ops::Timed timed("gradient norm");
  at::Tensor squares = ops::fused::square_sum(counted_gradients(buffers));
  if (!squares.defined()) squares = squares_one_by_one(buffers);
  parallel::all_reduce(squares, world, "gradient norm");
  return squares;
}

double gradient_norm(std::span<FlatBuffer* const> buffers, comm::Group& world) {
  const at::Tensor squares = gradient_squares(buffers, world);
  return squares.is_meta() ? 0 : std::sqrt(squares.item<double>());
}

void adamw_step(std::span<FlatBuffer* const> buffers, const AdamW& adamw, double learning_rate,
                std::int64_t step, double gradient_scale) {
  const ops::Timed timed("adamw");
  for (FlatBuffer* buffer : buffers) {
    if (const at::Tensor master = buffer->owned_master(); !master.is_meta()) {
      step_elements(*buffer, master, adamw, learning_rate, step, gradient_scale);
      if (buffer->low_bits().defined()) buffer->set_owned_master(master);
    }
    buffer->share_weights();
    buffer->drop_gradients();
  }
}

bool takes_fused_adamw(std::span<FlatBuffer* const> buffers) {
  if (buffers.empty()) return false;
  const FlatBuffer& any = *buffers.front();
  const at::ScalarType weights = any.owned_weights().scalar_type();
  const at::ScalarType gradients = any.owned_gradients().scalar_type();
  return ops::fused::reaches(any.owned_weights()) &&
         (weights == at::kFloat || any.low_bits().defined()) &&
         (gradients == at::kFloat || gradients == at::kBFloat16);
}

void fused_adamw_step(std::span<FlatBuffer* const> buffers, const AdamW& adamw,
                      const at::Tensor& pace, const at::Tensor& gradient_scale) {
  const ops::Timed timed("adamw");
  const at::Tensor scale = gradient_scale.to(at::kFloat);
  for (FlatBuffer* buffer : buffers) {
    ops::fused::Adamw call;
    call.weight = buffer->owned_weights();
    call.low = buffer->low_bits();
    call.gradient = buffer->owned_gradients();
    call.first = buffer->first_moment();
    call.second = buffer->second_moment();
    call.scale = scale;
    call.pace = pace;
    for (const ElementRun& run : buffer->owned()) {
      const float decay = run.decays ? static_cast<float>(adamw.weight_decay) : 0.0F;
      const std::int64_t end = run.end - buffer->owned_begin();
      if (!call.runs.empty() && call.runs.back().decay == decay)
        call.runs.back().end = end;
      else
        call.runs.push_back({end, decay});
    }
    call.beta1 = adamw.beta1;
    call.beta2 = adamw.beta2;
    call.epsilon = adamw.epsilon;
    internal_check(ops::fused::adamw(call), "all buffers of a model are of the same types");
    buffer->share_weights();
    buffer->drop_gradients();
  }
}

}  // namespace braid::train
