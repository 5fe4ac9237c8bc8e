#pragma once
// Swin's step to half the resolution: two by two neighbours side by side, a norm, and one matrix.
// Ranks that share an image exchange tokens whose neighbours lie on others. Under megatron each
// rank has some columns of the output, which it exchanges for tokens.

#include <cstdint>
#include <vector>

#include "runtime/models/norm.h"

namespace braid::models {

// Between the tokens that a rank has of an image, row by row, and those of the merged image.
class Neighbours {
 public:
  explicit Neighbours(const parallel::Site& site);

  // [tokens, samples, hidden] ↔ [tokens / 4, samples, 4 · hidden]
  at::Tensor beside_each_other(const at::Tensor& x) const;
  at::Tensor apart(const at::Tensor& x) const;

 private:
  const parallel::Site& site_;
  std::vector<std::int64_t> sent_, received_;  // tokens, by rank; none: all stay where they are
  at::Tensor leaving_, home_;       // this rank's tokens in the order of leaving, and back
  at::Tensor arriving_, outgoing_;  // what arrived in the merged image's order, and back
};

class PatchMerging : public parallel::Layer {
 public:
  PatchMerging(std::string name, parallel::Site site);

  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed, parallel::Saved& saved,
                      parallel::WeightWork& work) override;

 private:
  Neighbours neighbours_;
  std::unique_ptr<Norm> norm_;
  parallel::Parameters::Id reduction_ = 0;
};

}  // namespace braid::models
