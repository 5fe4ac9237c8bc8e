#pragma once
// The parts of a block: each takes x and returns x + f(norm(x)), or norm(x + f(x)).

#include <cstdint>

#include "runtime/models/norm.h"
#include "runtime/parallel/layer.h"

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

// x + dropout(inner·Wᵀ + b): what a sub-layer's outward product adds to the residual stream.
at::Tensor onto_residual(const at::Tensor& x, const at::Tensor& inner, const at::Tensor& weight,
                         const at::Tensor& bias, const TokenDropout& dropout,
                         const parallel::Feed& feed, const parallel::Site& site);

}  // namespace braid::models
