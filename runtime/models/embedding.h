#pragma once
// Token embedding with learned positions, a segment table and a norm where its shape has them; rows
// of the vocabulary are cut under megatron. All tokens are of the first segment. That of an
// encoder-decoder makes both streams, and holds the tables that the blocks share.

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
  // Of relative positions: the encoder's, and the decoder's behind it.
  parallel::Parameters::Id bias_tables() const { return bias_tables_; }

 private:
  enum class Slot { ids, x, statistics, decoder_ids };
  static int slot(Slot which) { return static_cast<int>(which); }

  at::Tensor look_up(const at::Tensor& ids) const;
  // To the table, of these rows.
  void add_gradient_later(const at::Tensor& dx, const at::Tensor& ids, parallel::WeightWork& work);

  TokenDropout dropout_;
  std::unique_ptr<TokenDropout> decoder_dropout_;  // where it makes a second stream
  parallel::Parameters::Id table_ = 0, positions_ = 0, token_types_ = 0, bias_tables_ = 0;
  at::Tensor places_;  // [narrow tokens]: their rows of the learned positions, on the device
  std::unique_ptr<Norm> norm_;
};

}  // namespace braid::models
