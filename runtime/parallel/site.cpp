#include "runtime/parallel/site.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "planner/core/error.h"

namespace braid::parallel {

namespace {

// Strides of the axes, counted within the stage.
struct Axes {
  GroupShape data, context, tensor, outer, row, column;
};

Axes axes_of(const Strategy& s, const Mesh& mesh) {
  const Mesh alone{mesh.stage_devices(), 1, mesh.order};
  return {group_along(alone, s, Axis::data),   group_along(alone, s, Axis::context),
          group_along(alone, s, Axis::tensor), group_along(alone, s, Axis::outer),
          group_along(alone, s, Axis::row),    group_along(alone, s, Axis::column)};
}

// Ranks that share a causal sequence take an early and a late block each.
CutKind ring_cut(int ranks, std::int64_t tokens, bool causal) {
  return causal && ranks > 1 && tokens % (std::int64_t{2} * ranks) == 0 ? CutKind::zigzag
                                                                        : CutKind::blocks;
}

// By position, neighbours merged.
std::vector<Segment> in_order(std::vector<Segment> tokens) {
  std::ranges::sort(tokens);
  std::vector<Segment> merged;
  for (const Segment& s : tokens) {
    if (!merged.empty() && merged.back().end == s.begin) {
      merged.back().end = s.end;
    } else {
      merged.push_back(s);
    }
  }
  return merged;
}

// Which of the shape's tokens a rank holds, and which go around its ring.
void place_tokens(Site& site, const Mesh& mesh, int self, std::int64_t micro_batch) {
  const Strategy& strategy = site.strategy;
  const Axes axes = axes_of(strategy, mesh);
  const std::int64_t tokens = site.shape.tokens;
  const Layout layout = activation_layout(strategy, mesh, tokens, micro_batch, site.causal);
  site.narrow_tokens = segments(layout.dims[0], tokens, self);
  const std::vector<Cut> inner(layout.dims[0].begin(), layout.dims[0].end() - 1);
  site.wide_tokens = segments(inner, tokens, self);
  for (int c = 0; c < strategy.cp; ++c) {
    const int there = self + (c - site.context_rank) * axes.context.stride;
    if (!site.rows_share_tokens) {
      site.ring_tokens.push_back(segments(inner, tokens, there));
      continue;
    }
    std::vector<Segment> keys;
    for (int r = 0; r < strategy.square; ++r) {
      const std::vector<Segment> held =
          segments(inner, tokens, there + (r - site.row) * axes.row.stride);
      keys.insert(keys.end(), held.begin(), held.end());
      if (c == site.context_rank) site.row_tokens.push_back(held);
    }
    site.ring_tokens.push_back(in_order(std::move(keys)));
  }
}

}  // namespace

Numerics numerics_of(Precision precision, Precision gradient_precision, at::Device device) {
  const auto type = [](Precision p) { return p == Precision::fp32 ? at::kFloat : at::kBFloat16; };
  return {.compute = type(precision),
          .gradient = type(gradient_precision),
          .state = at::kFloat,
          .device = device,
          .fp8 = precision == Precision::fp8};
}

Numerics fp64_numerics(at::Device device) {
  return {.compute = at::kDouble,
          .gradient = at::kDouble,
          .state = at::kDouble,
          .device = device,
          .chunk_rows = 1};
}

GroupPtr Groups::among(const std::vector<int>& members, const std::string& purpose,
                       comm::GroupUse use) {
  GroupPtr& group = made_[{purpose, members}];
  if (!group) group = world_->subgroup(members, purpose, use);
  return group;
}

std::int64_t count(const std::vector<Segment>& tokens) {
  std::int64_t total = 0;
  for (const Segment& s : tokens) total += s.size();
  return total;
}

bool holds_first(const std::vector<Segment>& tokens) {
  return !tokens.empty() && tokens.front().begin == 0 && tokens.front().size() > 0;
}

at::Tensor positions_of(const std::vector<Segment>& tokens) {
  at::Tensor positions = at::empty({count(tokens)}, at::kLong);
  auto* out = positions.data_ptr<std::int64_t>();
  for (const Segment& s : tokens)
    for (std::int64_t t = s.begin; t < s.end; ++t) *out++ = t;
  return positions;
}

Layout activation_layout(const Strategy& strategy, const Mesh& mesh, std::int64_t tokens,
                         std::int64_t micro_batch, bool causal) {
  const Axes axes = axes_of(strategy, mesh);
  Layout layout;
  layout.dims.resize(3);
  layout.dims[0] = {{axes.context, ring_cut(strategy.cp, tokens, causal)}};
  layout.dims[1] = {{axes.data}};
  if (strategy.square > 1) {
    if (rows_share_samples(strategy, micro_batch)) {
      layout.dims[1].push_back({axes.row});
    } else {
      layout.dims[0].push_back({axes.row, ring_cut(strategy.square, tokens / strategy.cp, causal)});
    }
    layout.dims[2] = {{.axis = axes.column, .skew = axes.row}};
  }
  layout.dims[0].push_back({axes.outer});
  return layout;
}

int local_rank(int device, const Mesh& mesh) {
  return mesh.order == MeshOrder::dp_cp_tp_pp ? device / mesh.stages
                                              : device % mesh.stage_devices();
}

int device_at(int stage, int local, const Mesh& mesh) {
  return mesh.order == MeshOrder::dp_cp_tp_pp ? local * mesh.stages + stage
                                              : stage * mesh.stage_devices() + local;
}

Site make_site(const Plan& plan, int layer, const Strategy& strategy, int device, bool causal,
               const Numerics& numerics, Groups& groups) {
  const Mesh mesh = plan.mesh();
  const int stage = stage_of(device, mesh);
  const int self = local_rank(device, mesh);
  const Axes axes = axes_of(strategy, mesh);

  Site site;
  site.shape = plan.model.type_of(layer).shape;
  site.strategy = strategy;
  site.numerics = numerics;
  site.samples = plan.micro_batch() / strategy.dp;
  site.causal = causal;
  site.data_rank = coordinate(self, axes.data);
  site.context_rank = coordinate(self, axes.context);
  site.tensor_rank = coordinate(self, axes.tensor);
  site.expert_rank = site.data_rank % strategy.ep;

  // The stage's ranks for which `same` holds, in order.
  const auto members_where = [&](auto same) {
    std::vector<int> members;
    for (int other = 0; other < mesh.stage_devices(); ++other) {
      const int d = coordinate(other, axes.data);
      const int c = coordinate(other, axes.context);
      const int t = coordinate(other, axes.tensor);
      if (same(d, c, t)) members.push_back(device_at(stage, other, mesh));
    }
    return members;
  };
  const auto group_where = [&](auto same) { return groups.among(members_where(same)); };
  // One in which tensors go from rank to rank.
  const auto ring_where = [&](auto same) {
    return groups.among(members_where(same), "ring", comm::GroupUse::everything);
  };
  const int d0 = site.data_rank, c0 = site.context_rank, t0 = site.tensor_rank;
  const bool ulysses = strategy.tp_kind == TensorKind::ulysses;
  const int ep = strategy.ep;
  site.tensor = group_where([&](int d, int c, int) { return d == d0 && c == c0; });
  site.context = ring_where([&](int d, int, int t) { return d == d0 && t == t0; });
  site.replicas = group_where([&](int, int, int t) { return ulysses || t == t0; });
  site.experts =
      group_where([&](int d, int c, int t) { return d / ep == d0 / ep && c == c0 && t == t0; });
  site.expert_replicas =
      group_where([&](int d, int, int t) { return d % ep == d0 % ep && (ulysses || t == t0); });
  const std::int64_t kv = site.shape.kv_heads;
  const int sharing =
      kv > 0 && strategy.tensor_split() > kv ? static_cast<int>(strategy.tensor_split() / kv) : 1;
  site.same_kv = group_where(
      [&](int d, int c, int t) { return d == d0 && c == c0 && t / sharing == t0 / sharing; });

  const int q = strategy.square;
  site.outer_rank = t0 / (q * q);
  site.row = t0 / q % q;
  site.column = t0 % q;
  // The ranks of the tensor group for which `same` holds of square, row and column.
  const auto tensor_where = [&](auto same) {
    return group_where([&](int d, int c, int t) {
      return d == d0 && c == c0 && same(t / (q * q), t / q % q, t % q);
    });
  };
  const int o0 = site.outer_rank, row0 = site.row, column0 = site.column;
  site.outer = tensor_where([&](int, int r, int c) { return r == row0 && c == column0; });
  if (q > 1) {
    site.square =
        ring_where([&](int d, int c, int t) { return d == d0 && c == c0 && t / (q * q) == o0; });
    site.same_row = tensor_where([&](int o, int r, int) { return o == o0 && r == row0; });
    site.same_column = tensor_where([&](int o, int, int c) { return o == o0 && c == column0; });
    site.same_diagonal =
        tensor_where([&](int, int r, int c) { return (r + c) % q == site.diagonal(); });
    site.rows_share_tokens = !rows_share_samples(strategy, plan.micro_batch());
    if (!site.rows_share_tokens) site.samples /= q;
  }
  const int sample_rank =
      q > 1 && !site.rows_share_tokens ? site.data_rank * q + site.row : site.data_rank;
  site.first_sample = sample_rank * site.samples;

  const LayerShape& shape = site.shape;
  if (const std::int64_t others = std::max(shape.cross_tokens, shape.carried_tokens); others > 0) {
    auto beside = std::make_shared<Site>(site);
    beside->shape.tokens = others;
    place_tokens(*beside, mesh, self, plan.micro_batch());
    site.beside = std::move(beside);
  }
  place_tokens(site, mesh, self, plan.micro_batch());
  site.chunks =
      token_chunks(strategy, shape.tokens, static_cast<double>(site.samples), numerics.chunk_rows);
  return site;
}

}  // namespace braid::parallel
