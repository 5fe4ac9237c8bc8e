#include "runtime/parallel/square_norm.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include "runtime/ops/linear.h"
#include "runtime/ops/precision.h"
#include "runtime/parallel/collectives.h"

namespace braid::parallel {

namespace {

// Gradients come from the operators of whole rows: with the whole row's statistics they give the
// weights' gradients, and dx but for the means over the row, which they take over this rank's part
// alone. What the means differ by is put right afterwards, so that activations are read few times.

// Σ over the last dim of x·weight, [.., 1] in the statistics' precision.
at::Tensor weighted_sum(const at::Tensor& x, const at::Tensor& weight) {
  at::Tensor sum;
  ops::add_product(sum, x.reshape({-1, x.size(-1)}), weight.unsqueeze(1));
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = 1;
  return sum.view(shape);
}

// This rank's means less those of the whole row, from sums over this rank's part.
at::Tensor too_much(const at::Tensor& sums, std::int64_t part, const Site& site) {
  at::Tensor whole = sums.clone(at::MemoryFormat::Contiguous);
  all_reduce(whole, *site.same_row, "norm", comm::Reduction::sum, CommKind::tensor);
  return sums.div(static_cast<double>(part))
      .sub_(whole.div_(static_cast<double>(site.shape.hidden)));
}

// In x's type, rounded once.
at::Tensor centred(const at::Tensor& x, const at::Tensor& mean) {
  at::Tensor result = at::empty_like(x);
  at::sub_out(result, x, mean);
  return result;
}

}  // namespace

// Each rank's own mean and variance, put together: a sum of squares less a square of sums would
// lose what a large mean covers.
ops::LayerNorm square_layer_norm(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias, double epsilon, const Site& site) {
  // The CPU's kernel gives statistics in the type of its input.
  const at::Tensor exact = x.is_cpu() ? x.to(ops::wide(x.scalar_type())) : x;
  const at::Tensor own = ops::layer_norm(exact, {}, {}, epsilon).statistics;
  const at::Tensor all = all_gather(own.unsqueeze(0), *site.same_row, "norm", CommKind::tensor);
  const at::Tensor means = all.narrow(-1, 0, 1), inverses = all.narrow(-1, 1, 1);
  const at::Tensor mean = at::mean(means, at::IntArrayRef{0});
  const at::Tensor apart = at::sub(means, mean);
  // 1/σ² of each part has ε in it already.
  const at::Tensor variance = at::mean(
      at::mul(inverses, inverses).reciprocal_().add_(at::mul(apart, apart)), at::IntArrayRef{0});
  const at::Tensor inverse = variance.rsqrt();
  const at::Tensor normalised = at::addcmul(at::mul(mean, inverse).neg_(), x, inverse);
  at::Tensor y = at::empty_like(x);
  at::addcmul_out(y, bias, normalised, weight);
  return {std::move(y), at::cat({mean, inverse}, -1)};
}

ops::NormGradients square_layer_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                              const at::Tensor& statistics,
                                              const at::Tensor& weight, const Site& site) {
  ops::NormGradients made = ops::layer_norm_backward(dy, x, statistics, weight);
  const at::Tensor inverse = statistics.narrow(-1, 1, 1);
  const at::Tensor deviation = centred(x, statistics.narrow(-1, 0, 1));
  const at::Tensor gradients = weighted_sum(dy, weight);
  const at::Tensor along = weighted_sum(at::mul(dy, deviation), weight).mul_(inverse);
  const at::Tensor more = too_much(at::cat({gradients, along}, -1), x.size(-1), site);
  const at::Tensor scale = at::mul(more.narrow(-1, 1, 1), inverse).mul_(inverse);
  made.dx.addcmul_(deviation, scale).add_(at::mul(more.narrow(-1, 0, 1), inverse));
  return made;
}

ops::RmsNorm square_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                             const Site& site) {
  const at::Tensor length = at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, /*keepdim=*/true,
                                                   ops::wide(x.scalar_type()));
  at::Tensor squares = at::mul(length, length);
  all_reduce(squares, *site.same_row, "norm", comm::Reduction::sum, CommKind::tensor);
  at::Tensor inverse = squares.div_(static_cast<double>(site.shape.hidden)).add_(epsilon).rsqrt_();
  at::Tensor y = at::empty_like(x);
  at::mul_out(y, x, inverse);
  return {y.mul_(weight), std::move(inverse)};
}

ops::NormGradients square_rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                            const at::Tensor& statistics, const at::Tensor& weight,
                                            const Site& site) {
  ops::NormGradients made = ops::rms_norm_backward(dy, x, statistics, weight);
  const at::Tensor along = weighted_sum(at::mul(dy, x), weight).mul_(statistics);
  const at::Tensor more = too_much(along, x.size(-1), site);
  made.dx.addcmul_(x, at::mul(more, statistics).mul_(statistics));
  return made;
}

}  // namespace braid::parallel
