#pragma once
// Attention of a decoder's tokens to an encoder's, with its norm and residual. Keys and values are
// made of the stream beside the decoder's; the gradient of that adds up from block to block.

#include "runtime/models/residual_norm.h"
#include "runtime/models/sublayer.h"
#include "runtime/ops/attention.h"
#include "runtime/parallel/ring.h"
#include "runtime/parallel/square.h"

namespace braid::models {

class CrossAttention : public SubLayer {
 public:
  // Slots from `first_slot` on are its own.
  CrossAttention(const parallel::Site& site, parallel::Parameters::Declare& declare, int first_slot,
                 TokenDropout dropout);

  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Parameters& parameters, parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed,
                      parallel::Parameters& parameters, parallel::Saved& saved,
                      parallel::WeightWork& work) override;
  void forget_cheap(parallel::Saved& saved) override;

 private:
  enum class Slot { x, normed, statistics, q, k, v, out, lse };
  int slot(Slot which) const { return first_slot_ + static_cast<int>(which); }
  ops::Attended attend(const at::Tensor& q, const parallel::KeysAndValues& kv,
                       const parallel::Feed& feed) const;

  const parallel::Site& site_;
  parallel::Site ring_;  // queries of the decoder, keys of the encoder
  int first_slot_;
  TokenDropout dropout_;
  double scale_ = 1;
  ResidualNorm norm_;
  parallel::Parameters::Id q_ = 0, kv_ = 0, out_ = 0;
};

}  // namespace braid::models
