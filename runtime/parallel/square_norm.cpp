#include "runtime/parallel/square_norm.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include "runtime/ops/precision.h"
#include "runtime/parallel/collectives.h"

namespace braid::parallel {

namespace {

at::Tensor exact(const at::Tensor& x) { return x.to(ops::wide(x.scalar_type())); }

at::Tensor along_row(const at::Tensor& x) { return at::sum(x, at::IntArrayRef{-1}, true); }

at::Tensor sum_of_rows(const at::Tensor& x) {
  return at::sum(x.reshape({-1, x.size(-1)}), at::IntArrayRef{0});
}

// A token's numbers, summed over the ranks that share it, as means over the whole width.
at::Tensor means_over_row(at::Tensor sums, const Site& site) {
  sums = sums.contiguous();
  all_reduce(sums, *site.same_row, "norm", comm::Reduction::sum, CommKind::tensor);
  return sums.div_(static_cast<double>(site.shape.hidden));
}

}  // namespace

// Each rank's own mean and squared deviations, put together: a sum of squares less a square of sums
// would lose what a large mean covers.
ops::LayerNorm square_layer_norm(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias, double epsilon, const Site& site) {
  const auto width = static_cast<double>(x.size(-1));
  const at::Tensor wide = exact(x);
  const at::Tensor own_mean = at::mean(wide, at::IntArrayRef{-1}, true);
  const at::Tensor centred = at::sub(wide, own_mean);
  const at::Tensor own = at::cat({own_mean, along_row(at::mul(centred, centred))}, -1);
  const at::Tensor all = all_gather(own.unsqueeze(0), *site.same_row, "norm", CommKind::tensor);
  const at::Tensor means = all.narrow(-1, 0, 1);
  const at::Tensor mean = at::mean(means, at::IntArrayRef{0});
  const at::Tensor apart = at::sub(means, mean);
  at::Tensor variance =
      at::sum(at::mul(apart, apart).mul_(width).add_(all.narrow(-1, 1, 1)), at::IntArrayRef{0})
          .div_(static_cast<double>(site.shape.hidden));
  const at::Tensor inverse = variance.add_(epsilon).rsqrt_();
  at::Tensor y = at::sub(wide, mean).mul_(inverse).mul_(weight).add_(bias);
  return {y.to(x.scalar_type()), at::cat({mean, inverse}, -1)};
}

at::Tensor square_layer_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                      const at::Tensor& statistics, const at::Tensor& weight,
                                      const at::Tensor& weight_gradient,
                                      const at::Tensor& bias_gradient, const Site& site) {
  const at::Tensor inverse = statistics.narrow(-1, 1, 1);
  at::Tensor normalised = at::sub(exact(x), statistics.narrow(-1, 0, 1)).mul_(inverse);
  const at::Tensor wide_dy = exact(dy);
  const at::Tensor product = at::mul(wide_dy, normalised);
  weight_gradient.add_(sum_of_rows(product));
  bias_gradient.add_(sum_of_rows(wide_dy));
  at::Tensor scaled = at::mul(wide_dy, weight);
  const at::Tensor means =
      means_over_row(at::cat({along_row(scaled), along_row(at::mul(product, weight))}, -1), site);
  return scaled.sub_(means.narrow(-1, 0, 1))
      .sub_(normalised.mul_(means.narrow(-1, 1, 1)))
      .mul_(inverse)
      .to(x.scalar_type());
}

ops::RmsNorm square_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                             const Site& site) {
  const at::Tensor wide = exact(x);
  at::Tensor inverse = means_over_row(along_row(at::mul(wide, wide)), site).add_(epsilon).rsqrt_();
  at::Tensor y = at::mul(wide, inverse).to(x.scalar_type()).mul_(weight);
  return {std::move(y), std::move(inverse)};
}

at::Tensor square_rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                                    const at::Tensor& statistics, const at::Tensor& weight,
                                    const at::Tensor& weight_gradient, const Site& site) {
  at::Tensor normalised = at::mul(exact(x), statistics);
  const at::Tensor wide_dy = exact(dy);
  at::Tensor product = at::mul(wide_dy, normalised);
  weight_gradient.add_(sum_of_rows(product));
  const at::Tensor along = means_over_row(along_row(product.mul_(weight)), site);
  return at::mul(wide_dy, weight).sub_(normalised.mul_(along)).mul_(statistics).to(x.scalar_type());
}

}  // namespace braid::parallel
