#include "runtime/train/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <vector>

#include "runtime/parallel/collectives.h"

namespace braid::train {

using parallel::ElementRun;
using parallel::FlatBuffer;

double gradient_norm(std::span<FlatBuffer* const> buffers, comm::Group& world) {
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
  parallel::all_reduce(squares, world, "gradient norm");
  return squares.is_meta() ? 0 : std::sqrt(squares.item<double>());
}

void adamw_step(std::span<FlatBuffer* const> buffers, const AdamW& adamw, double learning_rate,
                std::int64_t step, double gradient_scale) {
  // Two lists, with and without weight decay; the fused kernel takes a whole list at once.
  struct Lists {
    std::vector<at::Tensor> weights, gradients, first, second, steps;
  };
  Lists lists[2];
  for (FlatBuffer* buffer : buffers) {
    const at::Tensor master = buffer->owned_master();
    if (master.is_meta()) return;
    at::Tensor gradients = buffer->owned_gradients();
    if (gradient_scale != 1) gradients.mul_(gradient_scale);
    if (gradients.scalar_type() != master.scalar_type()) gradients = gradients.to(master.dtype());
    for (const ElementRun& run : buffer->owned()) {
      Lists& list = lists[run.decays ? 1 : 0];
      const auto part = [&](const at::Tensor& flat) {
        return flat.narrow(0, run.begin - buffer->owned_begin(), run.end - run.begin);
      };
      list.weights.push_back(part(master));
      list.gradients.push_back(part(gradients));
      list.first.push_back(part(buffer->first_moment()));
      list.second.push_back(part(buffer->second_moment()));
      list.steps.push_back(
          at::full({}, static_cast<double>(step), master.options().dtype(at::kFloat)));
    }
  }
  for (int decays = 0; decays < 2; ++decays) {
    Lists& list = lists[decays];
    if (list.weights.empty()) continue;
    at::_fused_adamw_(list.weights, list.gradients, list.first, list.second, {}, list.steps,
                      learning_rate, adamw.beta1, adamw.beta2,
                      decays == 1 ? adamw.weight_decay : 0.0, adamw.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

}  // namespace braid::train
