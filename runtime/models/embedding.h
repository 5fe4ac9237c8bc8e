#pragma once
// Token embedding with learned positions, a segment table and a norm where its shape has them; rows
// of the vocabulary are cut under megatron. All tokens are of the first segment.

#include <memory>

#include "runtime/models/sublayer.h"

namespace braid::models {

class Embedding : public parallel::Layer {
 public:
  Embedding(std::string name, parallel::Site site, const ModelOptions& options);

  // x is not there; the feed has the ids of the inner tokens.
  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed, parallel::Saved& saved,
                      parallel::WeightWork& work) override;

  parallel::Parameters::Id table() const { return table_; }

 private:
  enum class Slot { ids, x, statistics };
  static int slot(Slot which) { return static_cast<int>(which); }

  TokenDropout dropout_;
  parallel::Parameters::Id table_ = 0, positions_ = 0, token_types_ = 0;
  std::unique_ptr<Norm> norm_;
};

}  // namespace braid::models
