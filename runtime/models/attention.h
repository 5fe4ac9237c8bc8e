#pragma once
// Self-attention with its norm and residual: grouped heads, rotary positions or ALiBi, norms on q
// and k, biases, a window, padding; under any tensor and context parallelism. Within windows of an
// image, under tensor parallelism.

#include "runtime/models/relative_bias.h"
#include "runtime/models/residual_norm.h"
#include "runtime/models/sublayer.h"
#include "runtime/models/windows.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/rotary.h"
#include "runtime/parallel/ring.h"
#include "runtime/parallel/square.h"

namespace braid::models {

class Attention : public SubLayer {
 public:
  // Slots from `first_slot` on are its own.
  Attention(const parallel::Site& site, parallel::Parameters::Declare& declare, int first_slot,
            TokenDropout dropout);

  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Parameters& parameters, parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed,
                      parallel::Parameters& parameters, parallel::Saved& saved,
                      parallel::WeightWork& work) override;
  void forget_cheap(parallel::Saved& saved) override;
  // Null: its scores get none.
  RelativeBias* relative_bias() { return relative_.get(); }

 private:
  enum class Slot {
    x,       // the norm's input
    normed,  // what the matrices see
    statistics,
    q,
    k,
    v,
    out,
    lse,
    raw_q,
    raw_k,
    statistics_q,
    statistics_k
  };
  struct Heads {
    at::Tensor q, k, v;
    at::Tensor operand;  // of their product's weight gradient
  };

  int slot(Slot which) const { return first_slot_ + static_cast<int>(which); }
  // From what the matrices see.
  Heads project(const at::Tensor& seen, const parallel::Parameters& parameters,
                parallel::Saved& saved) const;
  // Of its product alone, q's heads first: [wide, samples, heads · head_dim].
  parallel::Product multiply(const at::Tensor& seen, const parallel::Parameters& parameters) const;
  ops::Attended attend(const at::Tensor& q, const parallel::KeysAndValues& kv,
                       const parallel::Feed& feed, const parallel::Parameters& parameters) const;
  ops::AttentionGradients attend_backward(const at::Tensor& dout, const at::Tensor& q,
                                          const parallel::KeysAndValues& kv,
                                          const ops::Attended& attended, const parallel::Feed& feed,
                                          parallel::Parameters& parameters,
                                          parallel::WeightWork& work);
  // Between what the matrices make, by head, and the layout that attention sees.
  at::Tensor inward(const at::Tensor& x) const;
  at::Tensor outward(const at::Tensor& x) const;
  parallel::ScoreBias bias_of(const parallel::Feed& feed, bool with_gradient = false) const;
  const ops::RotaryTable& rotary_table() const;

  const parallel::Site& site_;
  int first_slot_;
  TokenDropout dropout_;
  std::int64_t q_width_ = 0, kv_width_ = 0;  // of this rank's heads
  double scale_ = 1;
  ResidualNorm norm_;
  parallel::Parameters::Id qkv_ = 0, qkv_bias_ = 0, q_norm_ = 0, k_norm_ = 0, out_ = 0,
                           out_bias_ = 0;
  mutable ops::RotaryTable table_;
  at::Tensor slopes_;  // of this rank's heads, under ALiBi
  std::unique_ptr<RelativeBias> relative_;
  std::unique_ptr<Windows> windows_;
};

}  // namespace braid::models
