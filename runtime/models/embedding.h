#pragma once
// Token embedding with learned positions; rows of the vocabulary are cut under megatron.

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
  enum class Slot { ids };
  static int slot(Slot which) { return static_cast<int>(which); }
  at::Tensor position_rows(const at::Tensor& table) const;

  TokenDropout dropout_;
  parallel::Parameters::Id table_ = 0, positions_ = 0;
};

}  // namespace braid::models
