#include "runtime/models/patch_embedding.h"

#include <ATen/TensorIndexing.h>

#include "runtime/ops/embedding.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/random.h"

namespace braid::models {

using parallel::Feed;
using parallel::Init;
using parallel::Saved;

namespace {

constexpr int kPatches = 0, kX = 1, kStatistics = 2;  // slots

}  // namespace

PatchEmbedding::PatchEmbedding(std::string name, parallel::Site place, const ModelOptions& options)
    : Layer(std::move(name), std::move(place)),
      dropout_(site(), options.dropout, ops::random_key(0, this->name())) {
  const LayerShape& s = site().shape;
  parallel::Parameters::Declare declare(site());
  projection_ = declare.add(
      {.name = "projection.weight", .shape = {s.hidden, s.patch_inputs}, .deviation = s.init_std});
  bias_ = declare.add(
      {.name = "projection.bias", .shape = {s.hidden}, .init = Init::zeros, .decays = false});
  if (s.class_token)
    class_token_ =
        declare.add({.name = "class_token", .shape = {1, s.hidden}, .deviation = s.init_std});
  if (s.embedding_norm) norm_ = std::make_unique<Norm>(site(), declare, "norm");
  if (s.positions > 0) {
    positions_ = declare.add(
        {.name = "positions", .shape = {s.positions, s.hidden}, .deviation = s.init_std});
    places_ = parallel::positions_of(site().narrow_tokens).to(site().numerics.device);
  }
  own(declare.make(this->name()));
}

bool PatchEmbedding::begins_with_class() const {
  return site().shape.class_token && parallel::holds_first(site().narrow_tokens);
}

at::Tensor PatchEmbedding::forward(const at::Tensor&, const Feed& feed, Saved& saved) {
  saved.keep(kPatches, feed.patches);
  at::Tensor x =
      ops::linear(feed.patches, parameters().weight(projection_), parameters().weight(bias_));
  if (begins_with_class()) x.select(0, 0).copy_(parameters().weight(class_token_));
  if (norm_) {
    const Norm::Normed normed = norm_->forward(x, parameters());
    saved.keep(kX, x);
    saved.keep(kStatistics, normed.statistics);
    x = normed.y;
  }
  if (site().shape.positions > 0)
    x = x.add(parameters().weight(positions_).index({places_}).unsqueeze(1));
  return dropout_(x, feed);
}

at::Tensor PatchEmbedding::backward(const at::Tensor& dy, const Feed& feed, Saved& saved,
                                    parallel::WeightWork& work) {
  const at::Tensor dsum = dropout_(dy, feed);
  if (site().shape.positions > 0)
    work.later([this, dsum] {
      ops::add_embedding_gradient(parameters().gradient(positions_), dsum.sum(1), places_);
    });
  const at::Tensor dx =
      norm_ ? norm_->backward(dsum, saved.at(kX), saved.at(kStatistics), parameters(), work) : dsum;
  work.later([this, dx, patches = saved.at(kPatches)] {
    // The class token's patch is empty: nothing of its gradient gets into the matrix.
    ops::add_weight_gradient(parameters().gradient_sum(projection_), dx, patches);
    const std::int64_t first = begins_with_class() ? 1 : 0;
    ops::add_rows(parameters().gradient_sum(bias_), dx.narrow(0, first, dx.size(0) - first));
    if (first > 0)
      ops::add_rows({parameters().gradient(class_token_).select(0, 0)}, dx.select(0, 0));
  });
  return {};
}

}  // namespace braid::models
