#pragma once
// A mixture of experts in place of the feed-forward. Dropless: every row reaches the experts its
// token chose, wherever they live.
//
//   rows of this rank's tokens, once for each expert they chose, ordered by expert
//     → over the expert-parallel ranks to where the expert is
//     → under megatron gathered over the tensor group, whose ranks hold columns of every expert
//     → experts → back the same way → weighted by the router and added up

#include "runtime/models/sublayer.h"

namespace braid::models {

class Mixture : public SubLayer {
 public:
  Mixture(const parallel::Site& site, parallel::Parameters::Declare& declare, int first_slot,
          TokenDropout dropout);

  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Parameters& parameters, parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed,
                      parallel::Parameters& parameters, parallel::Saved& saved,
                      parallel::WeightWork& work) override;
  void forget_cheap(parallel::Saved& saved) override;

 private:
  enum class Slot {
    x,
    normed,
    statistics,
    probabilities,
    chosen,
    arrived,
    pre,
    activated,
    outputs
  };
  int slot(Slot which) const { return first_slot_ + static_cast<int>(which); }
  int inputs() const { return is_gated(site_.shape.activation) ? 2 : 1; }

  const parallel::Site& site_;
  int first_slot_;
  TokenDropout dropout_;
  std::int64_t local_experts_ = 0;
  Norm norm_;
  parallel::Parameters::Id router_ = 0;
  std::vector<parallel::Parameters::Id> up_, down_;  // by local expert; up: gate first
};

}  // namespace braid::models
