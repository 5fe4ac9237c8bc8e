#include "planner/cost/cost_kind.h"

namespace braid {

std::string name_of(CostKind kind) {
  switch (kind) {
    case CostKind::measured:
      return "measured";
    case CostKind::roofline:
      return "roofline";
    case CostKind::galvatron:
      return "galvatron";
    case CostKind::analytic:
      return "analytic";
  }
  return {};
}

}  // namespace braid
