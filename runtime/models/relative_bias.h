#pragma once
// What T5 adds to a block's scores: a learned number for each head and bucket of relative
// positions. All blocks of a stack share one table, which the embedding holds; a block has a copy
// of it and a gradient, and SharedBias moves both.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/parallel/ring.h"

namespace braid::models {

// The bucket of a key `distance` tokens behind its query (before it, if negative).
std::int64_t relative_bucket(std::int64_t distance, bool both_directions, std::int64_t buckets,
                             std::int64_t furthest);

class RelativeBias {
 public:
  explicit RelativeBias(const parallel::Site& site);

  // What the scores of this rank's heads get, and a place for its gradient where asked for.
  void add_to(parallel::ScoreBias& bias, bool with_gradient) const;
  // Takes what backward left there.
  void take_gradient(const parallel::ScoreBias& bias);

  // [buckets, heads] each, of all heads.
  at::Tensor weight, gradient;

 private:
  std::int64_t first_head_ = 0, heads_ = 0;  // of this rank's scores
  at::Tensor bucket_of_distance_;
};

}  // namespace braid::models
