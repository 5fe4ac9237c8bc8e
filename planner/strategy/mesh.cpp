#include "planner/strategy/mesh.h"

#include "planner/core/error.h"

namespace braid {

namespace {

// Strides of a stage's axes, counted in the stage's own devices.
struct LocalStrides {
  int data, context, tensor;
};

LocalStrides local_strides(MeshOrder order, const Strategy& s) {
  if (order == MeshOrder::pp_tp_cp_dp) return {1, s.dp, s.dp * s.cp};
  return {s.tp * s.cp, s.tp, 1};
}

int spread(const Mesh& mesh) { return mesh.order == MeshOrder::dp_cp_tp_pp ? mesh.stages : 1; }

}  // namespace

std::string name_of(MeshOrder order) {
  switch (order) {
    case MeshOrder::pp_dp_cp_tp:
      return "pp_dp_cp_tp";
    case MeshOrder::dp_cp_tp_pp:
      return "dp_cp_tp_pp";
    case MeshOrder::pp_tp_cp_dp:
      return "pp_tp_cp_dp";
  }
  return {};
}

GroupShape group_along(const Mesh& mesh, const Strategy& strategy, Axis axis) {
  internal_check(strategy.devices() == mesh.stage_devices(), "a strategy must fill its stage");
  const LocalStrides strides = local_strides(mesh.order, strategy);
  const int far = spread(mesh);
  switch (axis) {
    case Axis::pipeline:
      return {mesh.stages, stage_distance(mesh)};
    case Axis::data:
      return {strategy.dp, strides.data * far};
    case Axis::context:
      return {strategy.cp, strides.context * far};
    case Axis::tensor:
      return {strategy.tp, strides.tensor * far};
    case Axis::outer:
      return {strategy.outer(), strides.tensor * far * strategy.square * strategy.square};
    case Axis::row:
      return {strategy.square, strides.tensor * far * strategy.square};
    case Axis::column:
      return {strategy.square, strides.tensor * far};
  }
  return {};
}

GroupShape replica_group(const Mesh& mesh, const Strategy& strategy) {
  // In every order the replicating axes are adjacent, so their product is one strided group.
  const bool tensor_replicates = strategy.tp_kind == TensorKind::ulysses;
  const bool data_is_inner = mesh.order == MeshOrder::pp_tp_cp_dp;
  const int local = data_is_inner || tensor_replicates ? 1 : strategy.tp;
  return {strategy.replicas(), local * spread(mesh)};
}

GroupShape expert_group(const Mesh& mesh, const Strategy& strategy) {
  return {strategy.ep, group_along(mesh, strategy, Axis::data).stride};
}

GroupShape expert_replica_group(const Mesh& mesh, const Strategy& strategy) {
  const GroupShape replicas = replica_group(mesh, strategy);
  const GroupShape data = group_along(mesh, strategy, Axis::data);
  const int distant = strategy.dp / strategy.ep;   // groups of experts along the data axis
  const int others = replicas.size / strategy.dp;  // replicas that differ along other axes only
  if (others == 1) return {distant, data.stride * strategy.ep};
  if (distant == 1)
    return {others, data.stride == replicas.stride ? data.stride * strategy.dp : replicas.stride};
  if (data.stride == replicas.stride)  // data-parallel replicas are the neighbours
    return {distant, data.stride * strategy.ep, others, data.stride * strategy.dp};
  return {others, replicas.stride, distant, data.stride * strategy.ep};
}

int stage_distance(const Mesh& mesh) {
  return mesh.order == MeshOrder::dp_cp_tp_pp ? 1 : mesh.stage_devices();
}

int stage_of(int device, const Mesh& mesh) {
  return mesh.order == MeshOrder::dp_cp_tp_pp ? device % mesh.stages
                                              : device / mesh.stage_devices();
}

std::vector<int> peers(int self, Axis axis, const Mesh& mesh, const Strategy& strategy) {
  const GroupShape group = group_along(mesh, strategy, axis);
  const int coordinate = (self / group.stride) % group.size;
  const int first = self - coordinate * group.stride;
  std::vector<int> ids;
  ids.reserve(static_cast<std::size_t>(group.size));
  for (int k = 0; k < group.size; ++k) ids.push_back(first + k * group.stride);
  return ids;
}

DeviceSpan devices_of_stage(int stage, const Mesh& mesh) {
  if (mesh.order == MeshOrder::dp_cp_tp_pp)
    return {stage, mesh.devices - mesh.stages + stage + 1, mesh.stages};
  return {stage * mesh.stage_devices(), (stage + 1) * mesh.stage_devices()};
}

}  // namespace braid
