#include "runtime/models/embedding.h"

#include <ATen/TensorIndexing.h>

#include "runtime/ops/embedding.h"
#include "runtime/ops/linear.h"
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
                        .deviation = s.init_std,
                        .zero_row = s.padding_id});
  if (s.positions > 0) {
    positions_ = declare.add(
        {.name = "positions", .shape = {s.positions, s.hidden}, .deviation = s.init_std});
    places_ = parallel::positions_of(site().narrow_tokens)
                  .add(s.position_offset)
                  .to(site().numerics.device);
  }
  if (s.token_types > 0)
    token_types_ = declare.add(
        {.name = "token_types", .shape = {s.token_types, s.hidden}, .deviation = s.init_std});
  if (s.position_bias > 0) {
    const auto table = [&](const char* stack) {
      return declare.add({.name = std::string(stack) + ".relative_bias",
                          .shape = {s.position_bias / 2, s.heads},
                          .deviation = s.init_std});
    };
    bias_tables_ = table("encoder");
    table("decoder");
  }
  if (site().beside)
    decoder_dropout_ = std::make_unique<TokenDropout>(
        *site().beside, options.dropout, ops::random_key(0, this->name() + ".decoder"));
  if (s.embedding_norm) norm_ = std::make_unique<Norm>(site(), declare, "norm");
  own(declare.make(this->name()));
}

at::Tensor Embedding::look_up(const at::Tensor& ids) const {
  const at::Tensor rows =
      ops::embedding(ids, parameters().weight(table_), parameters().local(table_).begin);
  return parallel::scatter_sum(rows, site());
}

void Embedding::add_gradient_later(const at::Tensor& dx, const at::Tensor& ids,
                                   parallel::WeightWork& work) {
  const auto arriving = std::make_shared<parallel::Gathering>();
  work.later(
      [this, arriving, ids] {
        ops::add_embedding_gradient(parameters().gradient(table_), arriving->wait(), ids,
                                    parameters().local(table_).begin, site().shape.padding_id);
      },
      [this, arriving, dx] { *arriving = parallel::Gathering(dx, site(), 1); });
}

at::Tensor Embedding::forward(const at::Tensor&, const Feed& feed, Saved& saved) {
  const LayerShape& s = site().shape;
  saved.keep(slot(Slot::ids), feed.ids);
  at::Tensor x = look_up(feed.ids);
  if (decoder_dropout_) {
    saved.keep(slot(Slot::decoder_ids), feed.decoder_ids);
    feed.side->value = (*decoder_dropout_)(look_up(feed.decoder_ids), feed);
  }
  if (s.positions > 0) x = x.add(parameters().weight(positions_).index({places_}).unsqueeze(1));
  if (s.token_types > 0) x = x.add(parameters().weight(token_types_).select(0, 0));
  if (norm_) {
    const Norm::Normed normed = norm_->forward(x, parameters());
    saved.keep(slot(Slot::x), x);
    saved.keep(slot(Slot::statistics), normed.statistics);
    x = normed.y;
  }
  return dropout_(x, feed);
}

at::Tensor Embedding::backward(const at::Tensor& dy, const Feed& feed, Saved& saved,
                               parallel::WeightWork& work) {
  at::Tensor dx = dropout_(dy, feed);
  if (norm_)
    dx = norm_->backward(dx, saved.at(slot(Slot::x)), saved.at(slot(Slot::statistics)),
                         parameters(), work);
  if (decoder_dropout_)
    add_gradient_later((*decoder_dropout_)(feed.side->gradient, feed),
                       saved.at(slot(Slot::decoder_ids)), work);
  add_gradient_later(dx, saved.at(slot(Slot::ids)), work);
  work.later([this, dx] {
    if (site().shape.token_types > 0)
      ops::add_rows({parameters().gradient(token_types_).select(0, 0)}, dx);
    if (site().shape.positions == 0) return;
    ops::add_embedding_gradient(parameters().gradient(positions_), dx.sum(1), places_);
  });
  return {};
}

}  // namespace braid::models
