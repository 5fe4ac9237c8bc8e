#pragma once
// What tensor parallelism moves inside a layer. A rank holds its narrow tokens between layers;
// megatron gathers them ahead of a cut matrix and scatters the sum behind one, Ulysses exchanges
// tokens for heads around attention. Every function is its own inverse's gradient: gather and
// scatter_sum, to_heads and to_tokens.

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/parallel/collectives.h"
#include "runtime/parallel/site.h"

namespace braid::parallel {

// [narrow, ..] → [wide, ..] under megatron and between squares; as it is otherwise.
at::Tensor gather_tokens(const at::Tensor& x, const Site& site);
// [wide, ..] summands of all ranks → their sum's [narrow, ..].
at::Tensor scatter_sum(const at::Tensor& x, const Site& site);

// The same with something to do meanwhile, chunk by chunk: each chunk is a part of every rank's
// narrow tokens, so that wide tokens lie chunk by chunk, and rank by rank within one. Of one chunk
// they lie as gather_tokens() has them.
class Gathering {
 public:
  Gathering() = default;  // of nothing
  // All chunks are on their way.
  Gathering(const at::Tensor& narrow, const Site& site, int chunks);

  int chunks() const { return static_cast<int>(parts_.size()); }
  at::Tensor wait(int chunk);  // its wide tokens; once
  at::Tensor wait();           // those of all chunks; once

 private:
  std::vector<Arriving> parts_;
  at::Tensor whole_;
};

class Scattering {
 public:
  Scattering(const Site& site, int chunks) : site_(&site), chunks_(chunks) {}
  // The next chunk's wide summands are on their way.
  void add(const at::Tensor& wide);
  at::Tensor wait();  // [narrow, ..], when all chunks were added

 private:
  const Site* site_;
  int chunks_;
  std::vector<Arriving> parts_;
  at::Tensor whole_;
};

// Wide tokens that lie rank by rank: the place of one chunk among them, [ranks, tokens, ..] where
// there are several.
at::Tensor chunk_of(const at::Tensor& wide, int chunk, const Site& site);

// Under Ulysses [narrow, samples, heads, d] ↔ [wide, samples, heads / tp, d]; as it is otherwise.
at::Tensor to_heads(const at::Tensor& x, const Site& site);
at::Tensor to_tokens(const at::Tensor& x, const Site& site);

}  // namespace braid::parallel
