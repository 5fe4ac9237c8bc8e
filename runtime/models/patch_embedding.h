#pragma once
// Image patches through one matrix, a learned class token ahead of them, a norm, learned positions.
// Every rank holds the parameters whole and makes its narrow tokens.

#include <memory>

#include "runtime/models/sublayer.h"

namespace braid::models {

class PatchEmbedding : public parallel::Layer {
 public:
  PatchEmbedding(std::string name, parallel::Site site, const ModelOptions& options);

  // x is not there; the feed has the patches of the narrow tokens, an empty one for the class
  // token.
  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed, parallel::Saved& saved,
                      parallel::WeightWork& work) override;

 private:
  // Whether this rank's first token is the class token.
  bool begins_with_class() const;

  TokenDropout dropout_;
  std::unique_ptr<Norm> norm_;
  parallel::Parameters::Id projection_ = 0, bias_ = 0, class_token_ = 0, positions_ = 0;
  at::Tensor places_;  // [narrow tokens]: their rows of the learned positions, on the device
};

}  // namespace braid::models
