#include "runtime/models/head.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "runtime/ops/cross_entropy.h"
#include "runtime/ops/linear.h"
#include "runtime/parallel/collectives.h"

namespace braid::models {

using parallel::CutBy;
using parallel::Feed;
using parallel::Saved;

Head::Head(std::string name, parallel::Site place) : Layer(std::move(name), std::move(place)) {
  const LayerShape& s = site().shape;
  parallel::Parameters::Declare declare(site());
  input_ = make_head_input(site(), declare);
  spec_ = {.name = "matrix",
           .shape = {s.vocab, s.hidden},
           .cut = CutBy::vocabulary,
           .deviation = s.init_std};
  if (!s.tied) {
    own_ = declare.add(spec_);
    matrix_ = {[this] { return parameters().weight(own_); },
               [this] { return parameters().gradient_sum(own_); }};
  }
  if (s.head_bias)
    bias_ = declare.add({.name = "bias",
                         .shape = {s.vocab},
                         .cut = CutBy::vocabulary,
                         .init = parallel::Init::zeros,
                         .decays = false});
  own(declare.make(this->name()));
}

parallel::LocalShape Head::rows() const { return parallel::local_shape(spec_, site()); }

// Some rows at a time: all logits of a long batch would be the largest tensor of a step.
at::Tensor Head::loss_gradient(const at::Tensor& wide, bool in_place, const Feed& feed) {
  const at::Tensor inputs = wide.reshape({-1, wide.size(2)});
  const at::Tensor labels = feed.labels.narrow(0, 0, wide.size(0)).reshape({-1});
  const auto row_bytes = static_cast<std::int64_t>(matrix_.weight().size(0) * inputs.itemsize());
  const std::int64_t rows = inputs.size(0), at_once = rows_of_logits(rows, row_bytes);
  if (watch_) logits_.reset();
  at::Tensor result = in_place ? inputs : at::empty_like(inputs);
  for (std::int64_t begin = 0; begin < rows; begin += at_once) {
    const std::int64_t count = std::min(at_once, rows - begin);
    write_gradient(result.narrow(0, begin, count), inputs.narrow(0, begin, count),
                   labels.narrow(0, begin, count), feed.loss_scale);
  }
  if (watch_) logits_ = logits_.view({wide.size(0), wide.size(1), -1});
  return result.view(wide.sizes());
}

void Head::write_gradient(const at::Tensor& out, const at::Tensor& inputs, const at::Tensor& labels,
                          double scale) {
  const bool biased = site().shape.head_bias;
  const at::Tensor logits =
      ops::linear(inputs, matrix_.weight(), biased ? parameters().weight(bias_) : at::Tensor());
  if (watch_) logits_ = logits_.defined() ? at::cat({logits_, logits}) : logits.clone();
  const at::Tensor dlogits = logits_gradient(logits, labels, scale);
  ops::add_weight_gradient(matrix_.gradient(), dlogits, inputs);
  if (biased) ops::add_rows(parameters().gradient_sum(bias_), dlogits);
  ops::linear_input_gradient_into(out, dlogits, matrix_.weight());
}

at::Tensor Head::logits_gradient(const at::Tensor& logits, const at::Tensor& labels, double scale) {
  const parallel::LocalShape local = rows();
  const ops::VocabularySlice slice{.first = local.begin, .real = local.real};
  const bool cut = site().megatron();
  const auto add_loss = [&](const at::Tensor& losses) {
    const at::Tensor loss = losses.sum(at::kDouble);
    loss_ = loss_.defined() ? loss_.add(loss) : loss;
  };
  if (!cut) {
    if (const auto losses = ops::cross_entropy_(logits, labels, slice, scale)) {
      add_loss(*losses);
      return logits;
    }
  }
  const auto own = cut ? ops::slice_statistics(logits, labels, slice) : std::nullopt;
  const at::Tensor max = own ? own->max.clone() : ops::logits_max(logits, slice);
  if (cut)
    parallel::all_reduce(max, *site().tensor, "logits max", comm::Reduction::max, CommKind::tensor);
  const at::Tensor sums =
      own ? ops::against(*own, max, labels, slice) : ops::exp_sums(logits, max, labels, slice);
  if (cut)
    parallel::all_reduce(sums, *site().tensor, "logits sum", comm::Reduction::sum,
                         CommKind::tensor);
  add_loss(ops::row_losses(sums, labels));
  return ops::logits_gradient_(logits, max, sums, labels, slice, scale);
}

at::Tensor Head::forward(const at::Tensor& x, const Feed& feed, Saved& saved) {
  const at::Tensor wide = input_->forward(x, parameters(), saved);
  // Tokens of which another rank makes the prediction: nothing to do here.
  if (wide.size(0) > 0)
    input_->keep_gradient(loss_gradient(wide, !wide.is_alias_of(x), feed), saved);
  return {};
}

at::Tensor Head::backward(const at::Tensor&, const Feed&, Saved& saved,
                          parallel::WeightWork& work) {
  return input_->backward(parameters(), saved, work);
}

at::Tensor Head::take_loss() {
  at::Tensor sum = std::exchange(loss_, {});
  const bool counts = !site().megatron() || site().tensor_rank == 0;
  if (sum.defined() && counts) return sum.view({1});
  return at::zeros({1}, at::TensorOptions(at::kDouble).device(site().numerics.device));
}

}  // namespace braid::models
