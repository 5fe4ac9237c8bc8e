#pragma once
// Final norm (or what else stands there), output matrix and loss, fused: forward goes on to the
// gradient of the matrix and of its input, so that logits live only for a moment and are made once.

#include <functional>
#include <memory>

#include "runtime/models/head_input.h"

namespace braid::models {

// Where the output matrix and its gradient are, when they are not the head's own (tied to the
// embedding): [vocabulary rows of this rank, hidden].
struct SharedMatrix {
  std::function<at::Tensor()> weight;
  std::function<ops::Sum()> gradient;
};

class Head : public parallel::Layer {
 public:
  Head(std::string name, parallel::Site site);

  void share(SharedMatrix matrix) { matrix_ = std::move(matrix); }

  at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                     parallel::Saved& saved) override;
  at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed, parallel::Saved& saved,
                      parallel::WeightWork& work) override;
  bool gradients_in_forward() const override { return true; }

  // The sum of this rank's tokens' losses since the last call, counted on one rank of a tensor
  // group: one fp64 on the device.
  at::Tensor take_loss();
  // Keeps a copy of the next logits, [predicting tokens, samples, vocabulary of this rank].
  void watch_logits(bool watch) { watch_ = watch; }
  const at::Tensor& logits() const { return logits_; }

 private:
  // This rank's slice of the vocabulary.
  parallel::LocalShape rows() const;
  // From the matrix's input to its gradient, which may take its place; adds to loss and matrix
  // gradient on the way.
  at::Tensor loss_gradient(const at::Tensor& wide, bool in_place, const parallel::Feed& feed);
  // The same of some rows.
  void write_gradient(const at::Tensor& out, const at::Tensor& inputs, const at::Tensor& labels,
                      double scale);
  // Adds to the loss; the logits become their gradient.
  at::Tensor logits_gradient(const at::Tensor& logits, const at::Tensor& labels, double scale);

  parallel::ParameterSpec spec_;
  std::unique_ptr<HeadInput> input_;
  parallel::Parameters::Id own_ = 0, bias_ = 0;
  SharedMatrix matrix_;
  at::Tensor loss_, logits_;
  bool watch_ = false;
};

}  // namespace braid::models
