#pragma once
// A block: attention, to an encoder's tokens as well where it has some, then feed-forward or a
// mixture; recomputed as its strategy says.

#include <memory>
#include <vector>

#include "runtime/models/relative_bias.h"
#include "runtime/models/sublayer.h"

namespace braid::models {

class Block : public parallel::Layer {
 public:
  Block(std::string name, parallel::Site site, const ModelOptions& options);

  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed, parallel::Saved& saved,
                      parallel::WeightWork& work) override;
  // Null: it has none.
  RelativeBias* relative_bias() { return bias_; }

 private:
  at::Tensor run(at::Tensor x, const parallel::Feed& feed, parallel::Saved& saved);

  std::vector<std::unique_ptr<SubLayer>> parts_;
  RelativeBias* bias_ = nullptr;
};

}  // namespace braid::models
