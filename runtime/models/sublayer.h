#pragma once
// The parts of a block: each takes x and returns x + f(norm(x)), or norm(x + f(x)).

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/models/norm.h"
#include "runtime/parallel/layer.h"
#include "runtime/parallel/tensor_split.h"

namespace braid::models {

// What a run asks of every model.
struct ModelOptions {
  double dropout = 0;  // of what a sub-layer adds, and of the embedding
};

class SubLayer {
 public:
  virtual ~SubLayer() = default;
  virtual at::Tensor forward(const at::Tensor& x, const parallel::Feed& feed,
                             parallel::Parameters& parameters, parallel::Saved& saved) = 0;
  virtual at::Tensor backward(const at::Tensor& dy, const parallel::Feed& feed,
                              parallel::Parameters& parameters, parallel::Saved& saved,
                              parallel::WeightWork& work) = 0;
  // Drops what selective recomputation makes again: attention's output, a mixture's activation.
  virtual void forget_cheap(parallel::Saved&) {}
};

// Dropout of [narrow tokens, samples, hidden] whose mask depends on the element alone, not on the
// layout.
class TokenDropout {
 public:
  TokenDropout(const parallel::Site& site, double probability, std::uint64_t place)
      : site_(&site), probability_(probability), place_(place) {}
  at::Tensor operator()(const at::Tensor& x, const parallel::Feed& feed) const;
  bool drops() const { return probability_ > 0; }

 private:
  const parallel::Site* site_;
  double probability_;
  std::uint64_t place_;
};

// x + dropout(inner·Wᵀ + b): what a sub-layer's outward product adds to the residual stream. Each
// chunk's sum is scattered while the next is multiplied.
at::Tensor onto_residual(const at::Tensor& x, const at::Tensor& inner, const at::Tensor& weight,
                         const at::Tensor& bias, const TokenDropout& dropout,
                         const parallel::Feed& feed, const parallel::Site& site);
// The same of a sum that is on its way.
at::Tensor onto_residual(const at::Tensor& x, parallel::Scattering& sum, const at::Tensor& bias,
                         const TokenDropout& dropout, const parallel::Feed& feed);

// What an inward matrix saw, gathered for its weight gradient: begun beside the products of the
// input's gradient where the weight gradient belongs to the same pass, otherwise at its turn.
class SeenAgain {
 public:
  SeenAgain(const parallel::Site& site, int chunks, const parallel::WeightWork& work)
      : site_(&site), chunks_(chunks), early_(site.megatron() && !work.waits()) {}
  bool early() const { return early_; }
  void start(const at::Tensor& narrow) const {
    *gathering_ = parallel::Gathering(narrow, *site_, chunks_);
  }
  // What prepares the weight gradient: nothing where it has begun already.
  std::function<void()> prepare(const at::Tensor& narrow) const;
  at::Tensor wait() const { return gathering_->wait(); }

 private:
  const parallel::Site* site_;
  int chunks_;
  bool early_;
  // Shared with the work that waits for it.
  std::shared_ptr<parallel::Gathering> gathering_ = std::make_shared<parallel::Gathering>();
};

}  // namespace braid::models
