#pragma once
// The dense feed-forward with its norm and residual.

#include "runtime/models/residual_norm.h"
#include "runtime/models/sublayer.h"

namespace braid::models {

class FeedForward : public SubLayer {
 public:
  FeedForward(const parallel::Site& site, parallel::Parameters::Declare& declare, int first_slot,
              TokenDropout dropout);

  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Parameters& parameters, parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed,
                      parallel::Parameters& parameters, parallel::Saved& saved,
                      parallel::WeightWork& work) override;

 private:
  enum class Slot { x, normed, statistics, pre };  // as Attention's
  int slot(Slot which) const { return first_slot_ + static_cast<int>(which); }
  // From what the first matrix sees to what the second one adds, each chunk's sum on its way.
  parallel::Scattering in_chunks(const at::Tensor& normed, const parallel::Parameters& parameters,
                                 parallel::Saved& saved) const;
  at::Tensor up_bias(const parallel::Parameters& parameters) const;
  int inputs() const { return is_gated(site_.shape.activation) ? 2 : 1; }

  const parallel::Site& site_;
  int first_slot_;
  TokenDropout dropout_;
  ResidualNorm norm_;
  parallel::Parameters::Id up_ = 0, up_bias_ = 0, down_ = 0, down_bias_ = 0;  // up: gate first
};

}  // namespace braid::models
