#pragma once
// A decoder block: attention, then feed-forward or a mixture, recomputed as its strategy says.

#include <memory>
#include <vector>

#include "runtime/models/sublayer.h"

namespace braid::models {

class Block : public parallel::Layer {
 public:
  Block(std::string name, parallel::Site site, const ModelOptions& options);

  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed, parallel::Saved& saved,
                      parallel::WeightWork& work) override;

 private:
  at::Tensor run(at::Tensor x, const parallel::Feed& feed, parallel::Saved& saved);

  std::vector<std::unique_ptr<SubLayer>> parts_;
};

}  // namespace braid::models
