#include "runtime/parallel/site.h"

#include <ATen/ops/empty.h>

#include "planner/core/error.h"

namespace braid::parallel {

namespace {

// Strides of the axes, counted within the stage.
struct Axes {
  GroupShape data, context, tensor;
};

Axes axes_of(const Strategy& s, const Mesh& mesh) {
  const Mesh alone{mesh.stage_devices(), 1, mesh.order};
  return {group_along(alone, s, Axis::data), group_along(alone, s, Axis::context),
          group_along(alone, s, Axis::tensor)};
}

CutKind ring_cut(int cp, std::int64_t tokens, bool causal) {
  return causal && cp > 1 && tokens % (std::int64_t{2} * cp) == 0 ? CutKind::zigzag
                                                                  : CutKind::blocks;
}

}  // namespace

Numerics numerics_of(Precision precision, Precision gradient_precision, at::Device device) {
  const auto type = [](Precision p) { return p == Precision::bf16 ? at::kBFloat16 : at::kFloat; };
  return {.compute = type(precision),
          .gradient = type(gradient_precision),
          .state = at::kFloat,
          .device = device};
}

Numerics fp64_numerics(at::Device device) {
  return {.compute = at::kDouble, .gradient = at::kDouble, .state = at::kDouble, .device = device};
}

GroupPtr Groups::among(const std::vector<int>& members, const std::string& purpose) {
  GroupPtr& group = made_[{purpose, members}];
  if (!group) group = world_->subgroup(members, purpose);
  return group;
}

std::int64_t count(const std::vector<Segment>& tokens) {
  std::int64_t total = 0;
  for (const Segment& s : tokens) total += s.size();
  return total;
}

at::Tensor positions_of(const std::vector<Segment>& tokens) {
  at::Tensor positions = at::empty({count(tokens)}, at::kLong);
  auto* out = positions.data_ptr<std::int64_t>();
  for (const Segment& s : tokens)
    for (std::int64_t t = s.begin; t < s.end; ++t) *out++ = t;
  return positions;
}

Layout activation_layout(const Strategy& strategy, const Mesh& mesh, std::int64_t tokens,
                         bool causal) {
  const Axes axes = axes_of(strategy, mesh);
  Layout layout;
  layout.dims.resize(2);
  layout.dims[0] = {{axes.context, ring_cut(strategy.cp, tokens, causal)}, {axes.tensor}};
  layout.dims[1] = {{axes.data}};
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
  const auto group_where = [&](auto same) {
    std::vector<int> members;
    for (int other = 0; other < mesh.stage_devices(); ++other) {
      const int d = coordinate(other, axes.data);
      const int c = coordinate(other, axes.context);
      const int t = coordinate(other, axes.tensor);
      if (same(d, c, t)) members.push_back(device_at(stage, other, mesh));
    }
    return groups.among(members);
  };
  const int d0 = site.data_rank, c0 = site.context_rank, t0 = site.tensor_rank;
  const bool ulysses = strategy.tp > 1 && strategy.tensor_split() == 1;
  const int ep = strategy.ep;
  site.tensor = group_where([&](int d, int c, int) { return d == d0 && c == c0; });
  site.context = group_where([&](int d, int, int t) { return d == d0 && t == t0; });
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

  const std::int64_t tokens = site.shape.tokens;
  const Layout layout = activation_layout(strategy, mesh, tokens, causal);
  site.narrow_tokens = segments(layout.dims[0], tokens, self);
  const std::vector<Cut> ring = {layout.dims[0][0]};
  for (int c = 0; c < strategy.cp; ++c) {
    const int other = self + (c - c0) * axes.context.stride;
    site.ring_tokens.push_back(segments(ring, tokens, other));
  }
  site.wide_tokens = site.ring_tokens[static_cast<std::size_t>(c0)];
  return site;
}

}  // namespace braid::parallel
