#include "runtime/measure/shapes.h"

#include <algorithm>
#include <set>

#include "planner/core/text.h"

namespace braid::measure {

namespace {

void add_groups(const Mesh& mesh, const Strategy& strategy, std::set<GroupShape>& shapes) {
  for (const Axis axis : {Axis::data, Axis::context, Axis::tensor})
    shapes.insert(group_along(mesh, strategy, axis));
  shapes.insert(replica_group(mesh, strategy));
  for (const int experts : divisors(strategy.dp)) {
    Strategy with_experts = strategy;
    with_experts.ep = experts;
    shapes.insert(expert_group(mesh, with_experts));
  }
}

}  // namespace

std::vector<GroupShape> group_shapes(int devices) {
  std::set<GroupShape> shapes;
  for (const int stages : divisors(devices))
    for (const MeshOrder order : kMeshOrders) {
      const Mesh mesh{devices, stages, order};
      const int width = mesh.stage_devices();
      for (int tp = 1; width % tp == 0; tp *= 2)
        for (int cp = 1; width % (tp * cp) == 0; cp *= 2)
          for (const TensorKind kind : {TensorKind::megatron, TensorKind::ulysses})
            add_groups(mesh, {.tp = tp, .tp_kind = kind, .cp = cp, .dp = width / tp / cp}, shapes);
    }
  std::erase_if(shapes, [](const GroupShape& shape) { return shape.size < 2; });
  return {shapes.begin(), shapes.end()};
}

std::vector<int> message_distances(int devices) {
  std::set<int> distances;
  for (const GroupShape& shape : group_shapes(devices)) distances.insert(shape.stride);
  for (const int stages : divisors(devices))
    for (const MeshOrder order : kMeshOrders)
      if (stages > 1) distances.insert(stage_distance({devices, stages, order}));
  return {distances.begin(), distances.end()};
}

std::vector<Bytes> message_sizes(Bytes largest) {
  std::vector<Bytes> sizes;
  for (std::int64_t size = 1024; size <= largest.value(); size *= 8) sizes.emplace_back(size);
  if (sizes.empty() || largest.value() >= 2 * sizes.back().value()) sizes.push_back(largest);
  return sizes;
}

}  // namespace braid::measure
