#pragma once
// Swin's attention: an image's tokens in square windows, that see each other alone. What its scores
// get is a learned number for each head and offset of two tokens, from a table of the block's own.
// Where windows are shifted, those at the edges hold pieces of the image that are not neighbours,
// and hide them from each other.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/parallel/layer.h"
#include "runtime/parallel/ring.h"

namespace braid::models {

class Windows {
 public:
  // Declares the table.
  Windows(const parallel::Site& site, parallel::Parameters::Declare& declare);

  // [tokens, samples, ..] ↔ [tokens of a window, windows · samples, ..]
  at::Tensor apart(const at::Tensor& x) const;
  at::Tensor together(const at::Tensor& x) const;

  ops::Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                       const parallel::Parameters& parameters) const;
  ops::AttentionGradients backward(const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const ops::Attended& attended, double scale,
                                   parallel::Parameters& parameters,
                                   parallel::WeightWork& work) const;

 private:
  ops::Visibility visibility(const parallel::Parameters& parameters) const;

  std::int64_t window_;                      // tokens
  std::int64_t first_head_ = 0, heads_ = 0;  // of this rank's scores, in its part of the table
  parallel::Parameters::Id table_ = 0;
  at::Tensor order_, place_;  // of tokens in windows, and back
  at::Tensor rows_;           // of the table, for each pair of a window
  at::Tensor hidden_;         // [windows, queries, keys] where they are shifted
};

}  // namespace braid::models
