#pragma once
// Pipelines drawn at random, of every schedule.

#include <random>
#include <utility>
#include <vector>

#include "planner/cost/pipeline.h"

namespace braid {

struct RandomPipeline {
  PipelineShape shape;
  std::vector<StageTimes> stages;
};

inline std::vector<RandomPipeline> random_pipelines(int count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto any = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(engine);
  };
  const auto seconds = [&](double high) {
    return Seconds(std::uniform_real_distribution<double>(0, high)(engine));
  };
  constexpr ScheduleKind kKinds[] = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                     ScheduleKind::interleaved, ScheduleKind::zero_bubble};
  std::vector<RandomPipeline> problems;
  while (static_cast<int>(problems.size()) < count) {
    const PipelineShape shape{kKinds[any(0, 3)], any(1, 6), any(1, 12), any(1, 3)};
    if (!schedulable(shape)) continue;
    std::vector<StageTimes> stages(static_cast<std::size_t>(shape.stages));
    for (StageTimes& stage : stages)
      stage = {seconds(1), seconds(2), seconds(1), seconds(4), seconds(4), seconds(1)};
    problems.push_back({shape, std::move(stages)});
  }
  return problems;
}

}  // namespace braid
