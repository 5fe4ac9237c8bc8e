// Attention with slopes, tables of distances and padding, against autograd.

#include <ATen/ops/arange.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/ops/autograd.h"
#include "tests/ops/attention_cases.h"

namespace braid::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor slopes(std::vector<double> values) { return at::tensor(values); }
at::Tensor lengths(std::vector<std::int64_t> values) { return at::tensor(values); }

// Two samples each.
std::vector<AttentionCase> cases() {
  return {
      {"slopes", 7, 7, 3, 3, 8, {.slopes = slopes({0.5, 0.25, 0.125})}},
      {"slopes of grouped heads", 7, 7, 4, 2, 8, {.slopes = slopes({0.5, 0.3, 0.2, 0.1})}},
      {"slopes within a window", 9, 9, 2, 2, 8, {.window = 3, .slopes = slopes({0.5, 0.1})}},
      {"slopes of a later block",
       4,
       6,
       2,
       1,
       8,
       {.query_begin = 8, .key_begin = 2, .slopes = slopes({0.5, 0.1})}},
      {"slopes of a block that nobody sees",
       4,
       4,
       2,
       2,
       8,
       {.key_begin = 4, .slopes = slopes({0.5, 0.1})}},
      {"padding", 7, 7, 4, 2, 8, {.causal = false, .lengths = lengths({7, 3})}},
      {"padding in a later block",
       5,
       6,
       2,
       2,
       8,
       {.causal = false, .key_begin = 4, .lengths = lengths({5, 9})}},
      {"a block that is padding in one sample",
       5,
       6,
       2,
       2,
       8,
       {.causal = false, .key_begin = 4, .lengths = lengths({3, 20})}},
      {"slopes and padding",
       6,
       6,
       2,
       2,
       8,
       {.slopes = slopes({0.5, 0.1}), .lengths = lengths({2, 6})}},
      {"more scores than are made at a time",
       1500,
       1500,
       2,
       2,
       2,
       {.causal = false, .slopes = slopes({0.01, 0.02}), .lengths = lengths({700, 1400})}},
      {"a sample's scores at a time",
       1300,
       1300,
       2,
       2,
       2,
       {.causal = false, .slopes = slopes({0.01, 0.02}), .lengths = lengths({700, 1200})}},
  };
}

// [batch, heads, queries, keys]: what is added, position by position; -inf where nothing is seen.
at::Tensor added_written_out(const AttentionCase& c) {
  at::Tensor added = at::zeros({2, c.heads, c.queries, c.keys}, at::kDouble);
  auto* out = added.data_ptr<double>();
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < c.heads; ++h)
      for (std::int64_t i = 0; i < c.queries; ++i)
        for (std::int64_t j = 0; j < c.keys; ++j, ++out) {
          const std::int64_t key = c.see.key_begin + j;
          const std::int64_t back = c.see.query_begin + i - key;
          const bool behind = back >= 0 && (c.see.window == 0 || back < c.see.window);
          const bool padding =
              c.see.lengths.defined() && key >= c.see.lengths.const_data_ptr<std::int64_t>()[b];
          if (c.see.slopes.defined())
            *out = -c.see.slopes.const_data_ptr<double>()[h] * static_cast<double>(back);
          if ((c.see.causal && !behind) || padding) *out = -kInfinity;
        }
  return added;
}

at::Tensor scores_written_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& added) {
  const at::Tensor keys = k.repeat_interleave(q.size(2) / k.size(2), 2).permute({1, 2, 3, 0});
  return at::matmul(q.permute({1, 2, 0, 3}), keys).mul(kScale).add(added);
}

at::Tensor attention_written_out(const std::vector<at::Tensor>& in, const at::Tensor& added) {
  const at::Tensor blind = added.isneginf().all(-1).unsqueeze(-1);
  const at::Tensor scores = scores_written_out(in[0], in[1], added).masked_fill(blind, 0);
  const at::Tensor weights = at::softmax(scores, -1).masked_fill(blind, 0);
  const at::Tensor values =
      in[2].repeat_interleave(in[0].size(2) / in[2].size(2), 2).permute({1, 2, 0, 3});
  return at::matmul(weights, values).permute({2, 0, 1, 3});
}

TEST(BiasedAttention, ForwardAndGradientsAreAutograds) {
  for (const at::Device device : test_devices())
    for (const AttentionCase& c : cases()) {
      const AttentionInputs in = inputs_of(c, at::kDouble, device);
      const at::Tensor added = added_written_out(c).to(device);
      Visibility see = c.see;
      if (see.slopes.defined()) see.slopes = see.slopes.to(device);
      if (see.lengths.defined()) see.lengths = see.lengths.to(device);
      Recorded reference(
          [&](const std::vector<at::Tensor>& x) { return attention_written_out(x, added); },
          {in.q, in.k, in.v});
      const Attended found = attention(in.q, in.k, in.v, kScale, see);
      EXPECT_TRUE(close(found.out, reference.output(), 1e-10)) << c.fact;
      EXPECT_TRUE(close(found.lse, scores_written_out(in.q, in.k, added).logsumexp(-1), 1e-10))
          << c.fact;
      const std::vector<at::Tensor> expected = reference.backward(in.dout);
      const AttentionGradients gradients =
          attention_backward(in.dout, in.q, in.k, in.v, found.out, found.lse, kScale, see);
      EXPECT_TRUE(
          close(together(gradients), together({expected[0], expected[1], expected[2]}), 1e-10))
          << c.fact;
    }
}

// [2 · reach - 1, heads] written out for a block, [1, heads, queries, keys].
at::Tensor by_pair(const at::Tensor& table, const AttentionCase& c) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < c.queries; ++i)
    for (std::int64_t j = 0; j < c.keys; ++j)
      rows.push_back(c.see.key_begin + j - c.see.query_begin - i + table.size(0) / 2);
  return table.index_select(0, at::tensor(rows))
      .view({1, c.queries, c.keys, c.heads})
      .permute({0, 3, 1, 2});
}

TEST(BiasedAttention, TablesOfDistancesHaveAutogradsGradients) {
  const std::vector<AttentionCase> with_table = {
      {"both ways", 7, 7, 3, 3, 8, {.causal = false}},
      {"causal", 7, 7, 4, 2, 8, {}},
      {"a later block", 4, 6, 2, 2, 8, {.causal = false, .query_begin = 3, .key_begin = 1}},
      {"padded", 7, 7, 2, 2, 8, {.causal = false, .lengths = lengths({7, 3})}},
      {"more scores than are made at a time", 1500, 1500, 2, 2, 2, {}},
  };
  for (const AttentionCase& c : with_table) {
    const AttentionInputs in = inputs_of(c, at::kDouble, at::Device(at::kCPU));
    const at::Tensor table = random_tensor({2 * std::max(c.queries, c.keys) + 5, c.heads}, 5);
    Visibility see = c.see;
    see.by_distance = table;
    see.distance_gradient = at::ones_like(table);  // to which is added
    const at::Tensor hidden = added_written_out(c);
    Recorded reference(
        [&](const std::vector<at::Tensor>& x) {
          return attention_written_out({x[0], x[1], x[2]}, by_pair(x[3], c).add(hidden));
        },
        {in.q, in.k, in.v, table});
    const Attended found = attention(in.q, in.k, in.v, kScale, see);
    EXPECT_TRUE(close(found.out, reference.output(), 1e-10)) << c.fact;
    const std::vector<at::Tensor> expected = reference.backward(in.dout);
    const AttentionGradients gradients =
        attention_backward(in.dout, in.q, in.k, in.v, found.out, found.lse, kScale, see);
    EXPECT_TRUE(
        close(together(gradients), together({expected[0], expected[1], expected[2]}), 1e-10))
        << c.fact;
    EXPECT_TRUE(close(see.distance_gradient, expected[3].add(1), 1e-10)) << c.fact;
  }
}

// As windows of an image do it: rows of a table that nothing but an index tells, and scores that
// fall for some pairs in some samples.
TEST(BiasedAttention, PairsWithRowsOfTheirOwnAndGroupsOfSamplesAreAutograds) {
  const std::int64_t queries = 4, keys = 5, heads = 3, entries = 6, groups = 3;
  const auto batched = [&](std::int64_t tokens, int seed) {
    return random_tensor({tokens, 2 * groups, heads, 8}, seed);
  };
  const at::Tensor q = batched(queries, 1), k = batched(keys, 2), v = batched(keys, 3);
  const at::Tensor dout = batched(queries, 4), table = random_tensor({entries, heads}, 5);
  const at::Tensor rows = at::arange(queries * keys).mul(7).remainder(entries);
  const at::Tensor by_group = random_tensor({groups, queries, keys}, 6).mul(10);
  Visibility see{.causal = false,
                 .by_distance = table,
                 .distance_gradient = at::zeros_like(table),
                 .pair_rows = rows.view({queries, keys}),
                 .by_group = by_group};
  Recorded reference(
      [&](const std::vector<at::Tensor>& x) {
        const at::Tensor by_row =
            x[3].index_select(0, rows).view({1, queries, keys, heads}).permute({0, 3, 1, 2});
        return attention_written_out({x[0], x[1], x[2]},
                                     by_row.add(by_group.repeat_interleave(2, 0).unsqueeze(1)));
      },
      {q, k, v, table});
  const Attended found = attention(q, k, v, kScale, see);
  EXPECT_TRUE(close(found.out, reference.output(), 1e-10));
  const std::vector<at::Tensor> expected = reference.backward(dout);
  const AttentionGradients gradients =
      attention_backward(dout, q, k, v, found.out, found.lse, kScale, see);
  EXPECT_TRUE(close(gradients.dq, expected[0], 1e-10));
  EXPECT_TRUE(close(gradients.dk, expected[1], 1e-10));
  EXPECT_TRUE(close(gradients.dv, expected[2], 1e-10));
  EXPECT_TRUE(close(see.distance_gradient, expected[3], 1e-10));
}

// As a ring does it: one block of keys after the other, of which some are padding in a sample.
TEST(BiasedAttention, BlocksOfKeysMakeTheWhole) {
  const AttentionCase whole{
      "whole",
      8,
      8,
      2,
      2,
      4,
      {.causal = false, .slopes = slopes({0.5, 0.1}), .lengths = lengths({3, 7})}};
  const AttentionInputs in = inputs_of(whole, at::kDouble, at::Device(at::kCPU));
  const Attended expected = attention(in.q, in.k, in.v, kScale, whole.see);
  const AttentionGradients gradients =
      attention_backward(in.dout, in.q, in.k, in.v, expected.out, expected.lse, kScale, whole.see);
  Attended merged;
  at::Tensor dq = at::zeros_like(in.q);
  std::vector<at::Tensor> dk, dv;
  for (std::int64_t begin = 0; begin < 8; begin += 4) {
    Visibility see = whole.see;
    see.key_begin = begin;
    const at::Tensor k = in.k.narrow(0, begin, 4), v = in.v.narrow(0, begin, 4);
    const Attended part = attention(in.q, k, v, kScale, see);
    merged = merged.out.defined() ? merge(merged, part) : part;
    const AttentionGradients one =
        attention_backward(in.dout, in.q, k, v, expected.out, expected.lse, kScale, see);
    dq.add_(one.dq);
    dk.push_back(one.dk);
    dv.push_back(one.dv);
  }
  EXPECT_TRUE(close(merged.out, expected.out, 1e-12));
  EXPECT_TRUE(close(merged.lse, expected.lse, 1e-12));
  EXPECT_TRUE(close(together({dq, at::cat(dk), at::cat(dv)}), together(gradients), 1e-12));
}

}  // namespace
}  // namespace braid::ops
