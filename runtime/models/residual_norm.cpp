#include "runtime/models/residual_norm.h"

namespace braid::models {

using parallel::Parameters;
using parallel::Saved;

ResidualNorm::ResidualNorm(const parallel::Site& site, Parameters::Declare& declare,
                           const std::string& prefix, int input_slot, int statistics_slot)
    : behind_(site.shape.post_norm),
      in_square_(site.in_square()),
      input_slot_(input_slot),
      statistics_slot_(statistics_slot),
      norm_(site, declare, prefix) {}

Norm::Normed ResidualNorm::forward(const at::Tensor& x, const Parameters& parameters) const {
  if (behind_) return {x, {}};
  return norm_.forward(x, parameters);
}

at::Tensor ResidualNorm::behind(const at::Tensor& sum, const Parameters& parameters,
                                Saved& saved) const {
  if (!behind_) return sum;
  const Norm::Normed normed = norm_.forward(sum, parameters);
  saved.keep(input_slot_, sum);
  saved.keep(statistics_slot_, normed.statistics);
  return normed.y;
}

at::Tensor ResidualNorm::seen(const Saved& saved, int seen_slot,
                              const Parameters& parameters) const {
  return is_cheap() ? norm_.forward(saved.at(input_slot_), parameters).y : saved.at(seen_slot);
}

at::Tensor ResidualNorm::behind_backward(const at::Tensor& dy, Parameters& parameters,
                                         const Saved& saved, parallel::WeightWork& work) const {
  if (!behind_) return dy;
  return norm_.backward(dy, saved.at(input_slot_), saved.at(statistics_slot_), parameters, work);
}

ResidualNorm::Gradient ResidualNorm::backward(const at::Tensor& dseen, Saved& saved,
                                              Parameters& parameters, parallel::WeightWork& work,
                                              const at::Tensor& residual, bool seen_before) const {
  if (behind_) return {dseen.add(residual), {}};
  const at::Tensor seen = is_cheap() && !seen_before ? dseen : at::Tensor();
  Gradient made{norm_.backward(dseen, saved.at(input_slot_), saved.at(statistics_slot_), parameters,
                               work, residual, seen),
                seen};
  saved.drop(input_slot_);  // makes room for the matrices' gradients
  return made;
}

}  // namespace braid::models
