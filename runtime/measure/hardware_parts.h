#pragma once
// The parts of measure_hardware(). Each adds what it finds to a profile, on all ranks alike.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "planner/profile/fit.h"
#include "planner/strategy/mesh.h"
#include "runtime/measure/hardware.h"
#include "runtime/measure/machine.h"

namespace braid::measure {

// What a rank that takes part contributes to a mean over `members` of the world's ranks.
inline double among(const Bench& bench, int members, double mine) {
  return mine * bench.world().size() / std::max(1, members);
}

struct HardwareTask {
  Bench& bench;
  const Machine& machine;
  const HardwareOptions& options;
  Bytes room;  // that one tensor may take

  at::ScalarType type_of(Precision precision) const {
    return precision == Precision::bf16 ? at::kBFloat16 : at::kFloat;
  }
  // One number of this rank for its kind of node, none for the others: the mean over all ranks is
  // then each kind's own mean.
  std::vector<double> by_kind(double mine) const;
};

// Rates by kind of node, as far as they were measured.
struct DeviceRates {
  std::vector<double> fp32, bf16;  // FLOP/s, the best of all products
  std::vector<double> memory;      // bytes/s
};
DeviceRates measure_devices(const HardwareTask& task, Profile& profile);

int num_device_measurements();

int num_collective_measurements(const HardwareTask& task);
void measure_collectives(const HardwareTask& task, Profile& profile);

int num_meeting_measurements(const HardwareTask& task);
void measure_meetings(const HardwareTask& task, Profile& profile);

// All groups of one shape, made when the first of them is needed: communicators are expensive.
class ShapeGroups {
 public:
  ShapeGroups(comm::Group& world, GroupShape shape) : world_(world), shape_(shape) {}

  GroupShape shape() const { return shape_; }
  int members() const;  // ranks of the world that belong to a whole group
  // This rank's group; none where it stands by. Collective over the world when called first.
  comm::Group* mine();

 private:
  comm::Group& world_;
  GroupShape shape_;
  bool made_ = false;
  std::unique_ptr<comm::Group> group_;
};

// Seconds against bytes of what was measured; nothing with less than two sizes.
std::optional<Line> message_line(const Profile& profile, Collective op, GroupShape group);

}  // namespace braid::measure
