#pragma once
// The norm of a sub-layer: ahead of it, y = x + f(norm(x)), or behind the sum, y = norm(x + f(x)).
// Either way a sub-layer keeps the norm's input and its statistics, and what its matrices saw where
// that is not made again.

#include <string>

#include "runtime/models/norm.h"

namespace braid::models {

class ResidualNorm {
 public:
  // The norm's input and statistics are kept in these slots.
  ResidualNorm(const parallel::Site& site, parallel::Parameters::Declare& declare,
               const std::string& prefix, int input_slot, int statistics_slot);

  // Whether backward() makes again what the matrices saw, so that it need not be kept: where a norm
  // lies ahead of them, and needs no other rank.
  bool is_cheap() const { return !behind_ && !in_square_; }
  // What the matrices see, with the statistics of a norm ahead of them.
  Norm::Normed forward(const at::Tensor& x, const parallel::Parameters& parameters) const;
  // From x + f to the sub-layer's output; what a norm there needs takes its slots.
  at::Tensor behind(const at::Tensor& sum, const parallel::Parameters& parameters,
                    parallel::Saved& saved) const;

  // What the matrices saw: kept in this slot, or made again from the norm's input.
  at::Tensor seen(const parallel::Saved& saved, int seen_slot,
                  const parallel::Parameters& parameters) const;
  // From the output's gradient to the sum's.
  at::Tensor behind_backward(const at::Tensor& dy, parallel::Parameters& parameters,
                             const parallel::Saved& saved, parallel::WeightWork& work) const;
  struct Gradient {
    at::Tensor dx;
    at::Tensor seen;  // what the matrices saw, where is_cheap()
  };
  // From the gradient of what the matrices saw to that of x, with `residual`, the sum's gradient;
  // x is dropped, and `dseen`'s memory holds what was seen. Where that was `seen_before`, it is not
  // made again.
  Gradient backward(const at::Tensor& dseen, parallel::Saved& saved,
                    parallel::Parameters& parameters, parallel::WeightWork& work,
                    const at::Tensor& residual, bool seen_before = false) const;

 private:
  bool behind_, in_square_;
  int input_slot_, statistics_slot_;
  Norm norm_;
};

}  // namespace braid::models
