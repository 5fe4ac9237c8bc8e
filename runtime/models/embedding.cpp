#include "runtime/models/embedding.h"

#include <ATen/TensorIndexing.h>

#include "runtime/ops/embedding.h"
#include "runtime/ops/random.h"
#include "runtime/parallel/tensor_split.h"

namespace braid::models {

using parallel::CutBy;
using parallel::Feed;
using parallel::Saved;

Embedding::Embedding(std::string name, parallel::Site place, const ModelOptions& options)
    : Layer(std::move(name), std::move(place)),
      dropout_(site(), options.dropout, ops::random_key(0, this->name())) {
  const LayerShape& s = site().shape;
  parallel::Parameters::Declare declare(site());
  table_ = declare.add({.name = "table",
                        .shape = {s.vocab, s.hidden},
                        .cut = CutBy::vocabulary,
                        .deviation = s.init_std});
  if (s.positions > 0)
    positions_ = declare.add(
        {.name = "positions", .shape = {s.positions, s.hidden}, .deviation = s.init_std});
  own(declare.make(this->name()));
}

at::Tensor Embedding::forward(const at::Tensor&, const Feed& feed, Saved& saved) {
  const LayerShape& s = site().shape;
  saved.keep(slot(Slot::ids), feed.ids);
  const at::Tensor rows =
      ops::embedding(feed.ids, parameters().weight(table_), parameters().local(table_).begin);
  at::Tensor x = parallel::scatter_sum(rows, site());
  if (s.positions > 0) {
    const at::Tensor at = parallel::positions_of(site().narrow_tokens).to(x.device());
    x = x.add(parameters().weight(positions_).index({at.add(s.position_offset)}).unsqueeze(1));
  }
  return dropout_(x, feed);
}

at::Tensor Embedding::backward(const at::Tensor& dy, const Feed& feed, Saved& saved,
                               parallel::WeightWork& work) {
  const at::Tensor dx = dropout_(dy, feed);
  work.later([this, dx, ids = saved.at(slot(Slot::ids))] {
    ops::add_embedding_gradient(parameters().gradient(table_), parallel::gather_tokens(dx, site()),
                                ids, parameters().local(table_).begin);
    if (site().shape.positions == 0) return;
    const at::Tensor at = parallel::positions_of(site().narrow_tokens).to(dx.device());
    ops::add_embedding_gradient(parameters().gradient(positions_), dx.sum(1),
                                at.add(site().shape.position_offset));
  });
  return {};
}

}  // namespace braid::models
