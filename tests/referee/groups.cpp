#include "tests/referee/groups.h"

#include <array>
#include <map>

namespace braid::referee {

namespace {

// Devices of equal key form a group.
template <class Key>
Groups grouped(const std::vector<Coordinates>& devices, Key key) {
  std::map<std::array<int, 3>, Group> groups;
  for (const Coordinates& c : devices) groups[key(c)].push_back(c.device);
  Groups list;
  for (auto& [value, group] : groups) list.push_back(std::move(group));
  return list;
}

}  // namespace

StageGroups groups_of(const std::vector<Coordinates>& devices, const Strategy& s) {
  using Key = std::array<int, 3>;
  // Under Ulysses every tensor rank holds all parameters.
  const bool cut = s.tp_kind == TensorKind::megatron;
  const auto matrix_part = [&](const Coordinates& c) { return cut ? c.tp : 0; };
  return {
      .tensor = grouped(devices,
                        [](const Coordinates& c) {
                          return Key{c.dp, c.cp, 0};
                        }),
      .context = grouped(devices,
                         [](const Coordinates& c) {
                           return Key{c.dp, 0, c.tp};
                         }),
      .replicas = grouped(devices,
                          [&](const Coordinates& c) {
                            return Key{0, 0, matrix_part(c)};
                          }),
      .experts = grouped(devices,
                         [&](const Coordinates& c) {
                           return Key{c.dp / s.ep, c.cp, c.tp};
                         }),
      .expert_replicas = grouped(devices,
                                 [&](const Coordinates& c) {
                                   return Key{c.dp % s.ep, 0, matrix_part(c)};
                                 }),
  };
}

}  // namespace braid::referee
