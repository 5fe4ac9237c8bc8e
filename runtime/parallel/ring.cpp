#include "runtime/parallel/ring.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>

#include "runtime/parallel/collectives.h"
#include "runtime/parallel/recorder.h"

namespace braid::parallel {

namespace {

using ops::Attended;
using ops::Visibility;

// One run of tokens: where it lies in the local tensors, and its first position.
struct Block {
  std::int64_t offset = 0, length = 0, begin = 0;
};

std::vector<Block> blocks_of(const std::vector<Segment>& tokens) {
  std::vector<Block> blocks;
  blocks.reserve(tokens.size());
  std::int64_t offset = 0;
  for (const Segment& s : tokens) {
    blocks.push_back({offset, s.size(), s.begin});
    offset += s.size();
  }
  return blocks;
}

at::Tensor tokens_of(const at::Tensor& x, const Block& block) {
  return x.narrow(0, block.offset, block.length);
}

Visibility visibility(const Site& site, const Block& queries, const Block& keys,
                      const ScoreBias& bias) {
  return {.causal = site.shape.attention == AttentionKind::causal,
          .window = site.shape.window,
          .query_begin = queries.begin,
          .key_begin = keys.begin,
          .slopes = bias.slopes,
          .lengths = bias.lengths,
          .by_distance = bias.by_distance,
          .distance_gradient = bias.distance_gradient};
}

// Queries and keys of all tokens, in order.
bool has_whole_sequence(const Site& site) {
  return site.strategy.cp == 1 && !site.rows_share_tokens;
}
Visibility whole_sequence(const Site& site, const ScoreBias& bias) {
  return visibility(site, {}, {}, bias);
}

// The pairs of blocks that see each other, with the queries of this rank and the keys of another.
template <class Visit>
void visit_pairs(const Site& site, int key_rank, const ScoreBias& bias, Visit visit) {
  const std::vector<Block> mine = blocks_of(site.wide_tokens);
  const std::vector<Block> theirs = blocks_of(site.ring_tokens[static_cast<std::size_t>(key_rank)]);
  for (std::size_t i = 0; i < mine.size(); ++i)
    for (const Block& keys : theirs) {
      const Visibility see = visibility(site, mine[i], keys, bias);
      if (ops::sees_any(see, mine[i].length, keys.length)) visit(i, mine[i], keys, see);
    }
}

// Passes a tensor to the next rank of the ring and gets the previous one's.
Arriving start_shift(const at::Tensor& x, comm::Group& ring, std::string_view name) {
  at::Tensor arriving = at::empty_like(x);
  const int size = ring.size();
  const std::array out = {comm::Outgoing{buffer_of(x), (ring.rank() + 1) % size}};
  const std::array in = {comm::Incoming{buffer_of(arriving), (ring.rank() + size - 1) % size}};
  comm::Handle handle = communicate({.kind = CommKind::context, .operation = name},
                                    [&] { return ring.exchange(out, in, name); });
  return {std::move(handle), x, std::move(arriving)};
}

int rank_after(const Site& site, int steps) {
  const int size = site.strategy.cp;
  return (site.context_rank - steps + size) % size;
}

// Sums over the ring, of outputs and of gradients, are kept in fp32 at least.
at::ScalarType sum_type(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? at::kFloat : x.scalar_type();
}

}  // namespace

Attended ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                        const Site& site, const ScoreBias& bias) {
  if (has_whole_sequence(site)) return ops::attention(q, k, v, scale, whole_sequence(site, bias));
  const std::vector<Block> queries = blocks_of(site.wide_tokens);
  std::vector<Attended> attended(queries.size());
  at::Tensor kv = at::stack({k, v});
  for (int step = 0; step < site.strategy.cp; ++step) {
    Arriving next;
    if (step + 1 < site.strategy.cp) next = start_shift(kv, *site.context, "ring");
    visit_pairs(site, rank_after(site, step), bias,
                [&](std::size_t i, const Block& mine, const Block& keys, const Visibility& see) {
                  Attended part = ops::attention(tokens_of(q, mine), tokens_of(kv[0], keys),
                                                 tokens_of(kv[1], keys), scale, see);
                  attended[i] = attended[i].out.defined()
                                    ? ops::merge(attended[i], part)
                                    : Attended{part.out.to(sum_type(part.out)), part.lse};
                });
    if (next.valid()) kv = next.wait();
  }
  std::vector<at::Tensor> outs, lses;
  for (Attended& part : attended) {
    outs.push_back(part.out.to(q.scalar_type()));  // the only rounding of the sum
    lses.push_back(part.lse);
  }
  return {at::cat(outs, 0), at::cat(lses, 2)};
}

ops::AttentionGradients ring_attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& v,
                                                const at::Tensor& out, const at::Tensor& lse,
                                                double scale, const Site& site,
                                                const ScoreBias& bias) {
  if (has_whole_sequence(site))
    return ops::attention_backward(dout, q, k, v, out, lse, scale, whole_sequence(site, bias));
  const at::TensorOptions sums = q.options().dtype(sum_type(q));
  at::Tensor dq = at::zeros(q.sizes(), sums);
  at::Tensor kv = at::stack({k, v});
  at::Tensor dkv = at::zeros(kv.sizes(), sums);  // travels with the keys it belongs to
  for (int step = 0; step < site.strategy.cp; ++step) {
    Arriving next;
    if (step + 1 < site.strategy.cp) next = start_shift(kv, *site.context, "ring");
    visit_pairs(site, rank_after(site, step), bias,
                [&](std::size_t, const Block& mine, const Block& keys, const Visibility& see) {
                  const ops::AttentionGradients part = ops::attention_backward(
                      tokens_of(dout, mine), tokens_of(q, mine), tokens_of(kv[0], keys),
                      tokens_of(kv[1], keys), tokens_of(out, mine),
                      lse.narrow(2, mine.offset, mine.length), scale, see);
                  tokens_of(dq, mine).add_(part.dq);
                  tokens_of(dkv[0], keys).add_(part.dk);
                  tokens_of(dkv[1], keys).add_(part.dv);
                });
    // One more step than the keys take: the last one brings the gradients home.
    if (site.strategy.cp > 1) dkv = start_shift(dkv, *site.context, "ring gradient").wait();
    if (next.valid()) kv = next.wait();
  }
  return {dq.to(q.scalar_type()), dkv[0].to(k.scalar_type()), dkv[1].to(v.scalar_type())};
}

}  // namespace braid::parallel
