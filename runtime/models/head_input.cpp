#include "runtime/models/head_input.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "runtime/ops/activation.h"
#include "runtime/ops/linear.h"
#include "runtime/parallel/collectives.h"
#include "runtime/parallel/tensor_split.h"

namespace braid::models {

using parallel::Init;
using parallel::Parameters;
using parallel::Saved;
using parallel::Site;

namespace {

void sum_over_tensor(const at::Tensor& row, const Site& site, const char* name) {
  parallel::all_reduce(row, *site.tensor, name, comm::Reduction::sum, CommKind::tensor);
}

constexpr int kX = 0, kGradient = 1, kStatistics = 2;  // slots of what has a norm or nothing

at::Tensor normed(const Norm* norm, const at::Tensor& x, const Parameters& parameters,
                  Saved& saved) {
  if (norm == nullptr) return x;
  const Norm::Normed result = norm->forward(x, parameters);
  saved.keep(kX, x);
  saved.keep(kStatistics, result.statistics);
  return result.y;
}

// A norm, or nothing.
class NormedInput : public HeadInput {
 public:
  NormedInput(const Site& site, Parameters::Declare& declare) : site_(site) {
    if (site.shape.final_norm) norm_ = std::make_unique<Norm>(site, declare, "norm");
  }

  at::Tensor forward(const at::Tensor& x, const Parameters& parameters, Saved& saved) override {
    return parallel::gather_tokens(scaled(normed(norm_.get(), x, parameters, saved)), site_);
  }

  void keep_gradient(const at::Tensor& gradient, Saved& saved) override {
    saved.keep(kGradient, scaled(parallel::scatter_sum(gradient, site_)));
  }

  at::Tensor backward(Parameters& parameters, Saved& saved, parallel::WeightWork& work) override {
    const at::Tensor& gradient = saved.at(kGradient);
    if (!norm_) return gradient;
    return norm_->backward(gradient, saved.at(kX), saved.at(kStatistics), parameters, work);
  }

 private:
  at::Tensor scaled(const at::Tensor& x) const {
    return site_.shape.output_scale == 1 ? x : x.mul(site_.shape.output_scale);
  }

  const Site& site_;
  std::unique_ptr<Norm> norm_;
};

// A dense layer as wide as the model, its activation and a norm (BERT).
class TransformedInput : public HeadInput {
 public:
  TransformedInput(const Site& site, Parameters::Declare& declare) : site_(site) {
    const LayerShape& s = site.shape;
    dense_ = declare.add(
        {.name = "dense.weight", .shape = {s.head_dense, s.hidden}, .deviation = s.init_std});
    bias_ = declare.add(
        {.name = "dense.bias", .shape = {s.head_dense}, .init = Init::zeros, .decays = false});
    norm_ = std::make_unique<Norm>(site, declare, "norm");
  }

  at::Tensor forward(const at::Tensor& x, const Parameters& parameters, Saved& saved) override {
    const at::Tensor pre = ops::linear(x, parameters.weight(dense_), parameters.weight(bias_));
    const at::Tensor activated = ops::activate(site_.shape.activation, pre);
    const Norm::Normed normed = norm_->forward(activated, parameters);
    saved.keep(kX, x);
    saved.keep(kPre, pre);
    saved.keep(kActivated, activated);
    saved.keep(kStatistics, normed.statistics);
    return parallel::gather_tokens(normed.y, site_);
  }

  void keep_gradient(const at::Tensor& gradient, Saved& saved) override {
    saved.keep(kGradient, parallel::scatter_sum(gradient, site_));
  }

  at::Tensor backward(Parameters& parameters, Saved& saved, parallel::WeightWork& work) override {
    const at::Tensor dactivated = norm_->backward(saved.at(kGradient), saved.at(kActivated),
                                                  saved.at(kStatistics), parameters, work);
    const at::Tensor dpre =
        ops::activate_backward(site_.shape.activation, dactivated, saved.at(kPre));
    work.later([this, &parameters, dpre, x = saved.at(kX)] {
      ops::add_weight_gradient(parameters.gradient_sum(dense_), dpre, x);
      ops::add_rows(parameters.gradient_sum(bias_), dpre);
    });
    return ops::linear_input_gradient(dpre, parameters.weight(dense_));
  }

 private:
  static constexpr int kX = 0, kPre = 1, kActivated = 2, kStatistics = 3, kGradient = 4;
  const Site& site_;
  Parameters::Id dense_ = 0, bias_ = 0;
  std::unique_ptr<Norm> norm_;
};

// The first token, normed: the only one of which something is predicted. The rank that has it works
// for all; under megatron its tensor group gets a copy, and each has its rows of the matrix.
class ClassTokenInput : public HeadInput {
 public:
  ClassTokenInput(const Site& site, Parameters::Declare& declare)
      : site_(site),
        owns_(parallel::holds_first(site.narrow_tokens)),
        sees_(parallel::holds_first(site.inner_tokens())) {
    if (site.shape.final_norm) norm_ = std::make_unique<Norm>(site, declare, "norm");
  }

  at::Tensor forward(const at::Tensor& x, const Parameters& parameters, Saved& saved) override {
    at::Tensor row = at::zeros({sees_ ? 1 : 0, x.size(1), x.size(2)}, x.options());
    if (owns_) {
      row.copy_(x.narrow(0, 0, 1));
      row = normed(norm_.get(), row, parameters, saved);
    }
    if (sees_ && site_.megatron()) sum_over_tensor(row, site_, "class token");
    return row;
  }

  void keep_gradient(const at::Tensor& gradient, Saved& saved) override {
    if (site_.megatron()) sum_over_tensor(gradient, site_, "class token gradient");
    if (owns_) saved.keep(kGradient, gradient);
  }

  at::Tensor backward(Parameters& parameters, Saved& saved, parallel::WeightWork& work) override {
    at::Tensor dx =
        at::zeros({parallel::count(site_.narrow_tokens), site_.samples, site_.shape.hidden},
                  at::TensorOptions(site_.numerics.compute).device(site_.numerics.device));
    if (!owns_) return dx;
    const at::Tensor& gradient = saved.at(kGradient);
    dx.narrow(0, 0, 1).copy_(
        norm_ ? norm_->backward(gradient, saved.at(kX), saved.at(kStatistics), parameters, work)
              : gradient);
    return dx;
  }

 private:
  const Site& site_;
  bool owns_, sees_;
  std::unique_ptr<Norm> norm_;
};

// The mean of all tokens, normed. Under megatron every rank has its rows of the matrix, otherwise
// the first of a tensor group works for all.
class MeanInput : public HeadInput {
 public:
  MeanInput(const Site& site, Parameters::Declare& declare) : site_(site) {
    if (site.shape.final_norm) norm_ = std::make_unique<Norm>(site, declare, "norm");
  }

  at::Tensor forward(const at::Tensor& x, const Parameters& parameters, Saved& saved) override {
    const at::Tensor mean =
        normed(norm_.get(), x, parameters, saved).sum(0, /*keepdim=*/true).div_(site_.shape.tokens);
    if (site_.strategy.tp > 1) sum_over_tensor(mean, site_, "mean of tokens");
    return predicts() ? mean : mean.narrow(0, 0, 0);
  }

  void keep_gradient(const at::Tensor& gradient, Saved& saved) override {
    if (site_.megatron()) sum_over_tensor(gradient, site_, "mean's gradient");
    saved.keep(kGradient, gradient);
  }

  at::Tensor backward(Parameters& parameters, Saved& saved, parallel::WeightWork& work) override {
    at::Tensor gradient =
        predicts()
            ? saved.at(kGradient)
            : at::zeros({1, site_.samples, site_.shape.hidden},
                        at::TensorOptions(site_.numerics.compute).device(site_.numerics.device));
    if (site_.ulysses()) sum_over_tensor(gradient, site_, "mean's gradient");
    at::Tensor dnormed = gradient.div(site_.shape.tokens)
                             .expand({parallel::count(site_.narrow_tokens), -1, -1})
                             .contiguous();
    if (!norm_) return dnormed;
    return norm_->backward(dnormed, saved.at(kX), saved.at(kStatistics), parameters, work);
  }

 private:
  bool predicts() const { return !site_.ulysses() || site_.tensor_rank == 0; }

  const Site& site_;
  std::unique_ptr<Norm> norm_;
};

}  // namespace

std::unique_ptr<HeadInput> make_head_input(const Site& site, Parameters::Declare& declare) {
  if (site.shape.head_dense > 0) return std::make_unique<TransformedInput>(site, declare);
  if (site.shape.pooled && !site.shape.class_token)
    return std::make_unique<MeanInput>(site, declare);
  if (site.shape.pooled) return std::make_unique<ClassTokenInput>(site, declare);
  return std::make_unique<NormedInput>(site, declare);
}

}  // namespace braid::models
