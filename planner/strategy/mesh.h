#pragma once
// Device ids as coordinates. Groups are arithmetic until the last moment, so that any cluster size
// is tested without a GPU.

#include <compare>
#include <string>
#include <vector>

#include "planner/strategy/strategy.h"

namespace braid {

enum class Axis {
  pipeline,
  data,
  context,
  tensor,
  // Parts of the tensor axis, from the slowest: squares, and a square's rows and columns. Along
  // `row` the row changes, so that such a group is one column of the square.
  outer,
  row,
  column,
};

// Which axis lies where, from the slowest (far apart) to the fastest (neighbouring ids).
enum class MeshOrder {
  pp_dp_cp_tp,  // stages on far devices, tensor groups on neighbours: Megatron's
  dp_cp_tp_pp,  // a stage's devices far apart, consecutive stages on neighbours
  pp_tp_cp_dp,  // data-parallel replicas on neighbours
};
inline constexpr MeshOrder kMeshOrders[] = {MeshOrder::pp_dp_cp_tp, MeshOrder::dp_cp_tp_pp,
                                            MeshOrder::pp_tp_cp_dp};
std::string name_of(MeshOrder order);

struct Mesh {
  int devices = 1;
  int stages = 1;
  MeshOrder order = MeshOrder::pp_dp_cp_tp;

  constexpr int stage_devices() const { return devices / stages; }
  constexpr auto operator<=>(const Mesh&) const = default;
};

// Members at first, first + stride, first + 2·stride, …; where the members lie on two axes that are
// not adjacent, `blocks` such runs at distances of block_stride.
struct GroupShape {
  int size = 1;  // of one run
  int stride = 1;
  int blocks = 1;
  int block_stride = 0;
  constexpr int members() const { return size * blocks; }
  constexpr auto operator<=>(const GroupShape&) const = default;
};

// The group along one axis. Every such group of a stage has the same shape.
GroupShape group_along(const Mesh& mesh, const Strategy& strategy, Axis axis);
// The devices that hold the same parameters: data, context and, under Ulysses, tensor axes
// together.
GroupShape replica_group(const Mesh& mesh, const Strategy& strategy);
// The devices among which `strategy.ep` splits the experts: neighbours on the data axis.
GroupShape expert_group(const Mesh& mesh, const Strategy& strategy);
// The devices that hold the same experts.
GroupShape expert_replica_group(const Mesh& mesh, const Strategy& strategy);
// Distance in ids between a device and its peer in the next stage.
int stage_distance(const Mesh& mesh);

// Ids that differ from `self` along `axis` only, ascending, with `self` among them.
std::vector<int> peers(int self, Axis axis, const Mesh& mesh, const Strategy& strategy);
int stage_of(int device, const Mesh& mesh);
// The devices of a stage: first, first + stride, … below `end`.
struct DeviceSpan {
  int first = 0, end = 0;
  int stride = 1;
  constexpr int count() const { return (end - first + stride - 1) / stride; }
  constexpr int at(int k) const { return first + k * stride; }
};
DeviceSpan devices_of_stage(int stage, const Mesh& mesh);

}  // namespace braid
