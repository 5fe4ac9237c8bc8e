#pragma once
// The shape of a pipeline: how many stages, micro-batches and chunks, and in which order they run.

#include <compare>
#include <string>

namespace braid {

enum class ScheduleKind { gpipe, one_f_one_b, interleaved, zero_bubble };

struct PipelineShape {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int stages = 1;
  int micro_batches = 1;
  int chunks = 1;  // model chunks a stage owns; above 1 only under `interleaved`

  constexpr auto operator<=>(const PipelineShape&) const = default;
};

std::string name_of(ScheduleKind kind);

}  // namespace braid
