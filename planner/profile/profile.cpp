#include "planner/profile/profile.h"

#include <fmt/core.h>

#include <algorithm>

namespace braid {

std::string name_of(Collective op) {
  switch (op) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::point_to_point:
      return "point_to_point";
  }
  return {};
}

const MeasuredLayer* Profile::layer(const std::string& type) const {
  const auto found = std::ranges::find(layers, type, &MeasuredLayer::type);
  return found == layers.end() ? nullptr : &*found;
}

std::vector<std::string> differences(std::span<const Fact> then, std::span<const Fact> now) {
  std::vector<std::string> lines;
  for (const Fact& fact : then) {
    const auto found = std::ranges::find(now, fact.name, &Fact::name);
    if (found == now.end())
      lines.push_back(fmt::format("{}: '{}' then, unknown now", fact.name, fact.value));
    else if (found->value != fact.value)
      lines.push_back(fmt::format("{}: '{}' then, '{}' now", fact.name, fact.value, found->value));
  }
  for (const Fact& fact : now)
    if (std::ranges::find(then, fact.name, &Fact::name) == then.end())
      lines.push_back(fmt::format("{}: unknown then, '{}' now", fact.name, fact.value));
  return lines;
}

}  // namespace braid
