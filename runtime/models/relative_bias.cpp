#include "runtime/models/relative_bias.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "runtime/ops/precision.h"
#include "runtime/ops/reorder.h"

namespace braid::models {

// Half of a direction's buckets are of one distance each; the others grow with the logarithm, which
// published models took in fp32 (Raffel et al., 2020).
std::int64_t relative_bucket(std::int64_t distance, bool both_directions, std::int64_t buckets,
                             std::int64_t furthest) {
  const std::int64_t own = both_directions ? buckets / 2 : buckets;
  const std::int64_t first = both_directions && distance > 0 ? own : 0;
  const std::int64_t apart =
      both_directions ? std::abs(distance) : std::max<std::int64_t>(0, -distance);
  const std::int64_t single = own / 2;
  if (apart < single) return first + apart;
  const float reach = std::log(static_cast<float>(apart) / static_cast<float>(single));
  const auto whole =
      static_cast<float>(std::log(static_cast<double>(furthest) / static_cast<double>(single)));
  const auto further = static_cast<std::int64_t>(reach / whole * static_cast<float>(own - single));
  return first + std::min(own - 1, single + further);
}

RelativeBias::RelativeBias(const parallel::Site& site) {
  const LayerShape& s = site.shape;
  // Ulysses has cut the heads when it comes to scores.
  const std::int64_t ways = site.ulysses() ? site.strategy.tp : site.tensor_split();
  const std::int64_t rank = site.ulysses() ? site.tensor_rank : site.split_rank();
  heads_ = s.heads / ways;
  first_head_ = rank * heads_;
  const at::TensorOptions options = at::TensorOptions(site.numerics.device);
  weight = at::zeros({s.bias_buckets, s.heads}, options.dtype(site.numerics.compute));
  gradient = at::zeros({s.bias_buckets, s.heads}, options.dtype(site.numerics.gradient));
  at::Tensor index = at::empty({2 * s.tokens - 1}, at::kLong);
  auto* bucket = index.data_ptr<std::int64_t>();
  const bool both = s.attention != AttentionKind::causal;
  for (std::int64_t distance = 1 - s.tokens; distance < s.tokens; ++distance)
    *bucket++ = relative_bucket(distance, both, s.bias_buckets, s.bias_distance);
  bucket_of_distance_ = index.to(site.numerics.device);
}

// Tensors without memory have no scores to add to.
void RelativeBias::add_to(parallel::ScoreBias& bias, bool with_gradient) const {
  if (weight.is_meta()) return;
  bias.by_distance = weight.narrow(1, first_head_, heads_).index_select(0, bucket_of_distance_);
  if (with_gradient)
    bias.distance_gradient =
        at::zeros(bias.by_distance.sizes(),
                  bias.by_distance.options().dtype(ops::wide(bias.by_distance.scalar_type())));
}

void RelativeBias::take_gradient(const parallel::ScoreBias& bias) {
  if (gradient.is_meta()) return;
  ops::add_rows(gradient.narrow(1, first_head_, heads_), bucket_of_distance_,
                bias.distance_gradient.to(gradient.scalar_type()));
}

}  // namespace braid::models
