#pragma once

#include <string>

namespace braid {

enum class CostKind {
  measured,   // a profile's figures, the roofline where it has none
  roofline,   // peaks and stated efficiencies
  galvatron,  // Galvatron's formulas on a profile, quirks included
  analytic,   // device models: efficiency by shape, collectives by algorithm and protocol
};
constexpr bool uses_profile(CostKind kind) {
  return kind == CostKind::measured || kind == CostKind::galvatron;
}
std::string name_of(CostKind kind);

}  // namespace braid
