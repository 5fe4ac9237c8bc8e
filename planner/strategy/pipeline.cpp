#include "planner/strategy/pipeline.h"

#include "planner/core/error.h"

namespace braid {

std::string name_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::gpipe:
      return "gpipe";
    case ScheduleKind::one_f_one_b:
      return "1f1b";
    case ScheduleKind::interleaved:
      return "interleaved";
    case ScheduleKind::zero_bubble:
      return "zero_bubble";
  }
  internal_failure("a schedule without a name", std::source_location::current());
}

}  // namespace braid
