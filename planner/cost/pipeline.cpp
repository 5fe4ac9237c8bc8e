#include "planner/cost/pipeline.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/core/error.h"
#include "planner/core/limits.h"

// Notation of the comments: p stages, m micro-batches, v chunks, stage i; F, B and W are forward,
// backward and its weight half. F_k goes down the stages, B_k comes back up.

namespace braid {
namespace {

using Stages = std::span<const StageTimes>;

Seconds compute(const StageTimes& t) { return t.forward + t.backward_input + t.backward_weight; }

// One stage has nobody to pass a gradient to, so its backward stays whole.
bool splits_backward(const PipelineShape& shape) {
  return shape.schedule == ScheduleKind::zero_bubble && shape.stages > 1;
}

template <class Value>
Seconds sum_over(Stages stages, Value value) {
  return std::accumulate(stages.begin(), stages.end(), Seconds(0),
                         [&](Seconds sum, const StageTimes& stage) { return sum + value(stage); });
}

Seconds slowest_update(Stages stages) {
  Seconds slowest;
  for (const StageTimes& stage : stages) slowest = std::max(slowest, stage.update);
  return slowest;
}

// F_k and B_k of these stages, one after the other, with the transfers between them.
Seconds round_trip(const PipelineShape& shape, Stages stages) {
  const bool split = splits_backward(shape);
  const Seconds work = sum_over(stages, [&](const StageTimes& t) {
    return split ? t.forward + t.backward_input : compute(t);
  });
  const auto transfer = [](const StageTimes& t) { return 2.0 * t.transfer; };
  return work + sum_over(stages.first(stages.size() - 1), transfer);
}

// GPipe: all F pass the slowest forward, then all B the slowest backward, which may be another
// stage; the path ends in the reduction of any stage. No other path is longer: this is the time.
Seconds two_phase_time(const PipelineShape& shape, Stages stages) {
  const double others = shape.micro_batches - 1;
  Seconds slowest_forward, slowest_backward;
  Seconds down = sum_over(stages, [](const StageTimes& t) { return t.forward; });
  for (const StageTimes& t : stages) slowest_forward = std::max(slowest_forward, t.forward);

  Seconds up, longest;
  for (std::size_t i = stages.size(); i-- > 0;) {
    const StageTimes& t = stages[i];
    const Seconds transfer = i + 1 < stages.size() ? t.transfer : Seconds(0);
    const Seconds backward = t.backward_input + t.backward_weight;
    slowest_backward = std::max(slowest_backward, backward);
    down += transfer;
    up += transfer + backward;
    longest = std::max(longest, up + others * slowest_backward + t.reduce);
  }
  return down + others * slowest_forward + longest + slowest_update(stages);
}

// 1F1B and zero-bubble: F_0 down, B_0 up, and only then has stage 0 room for F_p. After `laps` such
// laps the last stage works through what is left or, where that is less than a lap, the last stages
// make a shorter one. Nothing hides the transfers of a lap.
Seconds lap_time(const PipelineShape& shape, Stages stages, int laps) {
  const bool split = splits_backward(shape);
  // W is behind by one micro-batch a stage, so below stage 0 the first lap has none.
  const auto weight = [&](const StageTimes& t) {
    return split && laps > 0 ? t.backward_weight : Seconds(0);
  };
  const int left = shape.micro_batches - 1 - laps * shape.stages;
  Seconds rest = left * 1.0 * (round_trip(shape, stages.last(1)) + weight(stages.back()));
  if (0 < left && left < shape.stages) {
    const Stages last = stages.last(static_cast<std::size_t>(left));
    rest = std::max(rest, round_trip(shape, last) + weight(last.front()));
  }
  const Seconds first_weight = split ? stages.front().backward_weight : Seconds(0);
  return (laps + 1.0) * (round_trip(shape, stages) + first_weight) + rest + stages.front().reduce +
         slowest_update(stages);
}

// How many times an iteration takes as long as one micro-batch through all stages and back: only
// when the first has come back is there room for another.
int num_laps(const PipelineShape& shape) {
  if (shape.schedule == ScheduleKind::gpipe || shape.chunks > 1) return 1;
  return (shape.micro_batches - 1) / shape.stages + 1;
}

Seconds longest_lap_time(const PipelineShape& shape, Stages stages) {
  const int most = num_laps(shape) - 1;
  // Each further lap trades the same W for the same transfers, so an end of the range is longest.
  return std::max(lap_time(shape, stages, std::min(1, most)), lap_time(shape, stages, most));
}

// Interleaved: F_0 down through all chunks to the last one of stage i, which works from there to
// B_{m-1}, and up through all chunks. The stage's own work before and after, (v-1)p chunks of F and
// as many of B, lies beside this path.
Seconds all_chunks_time(const PipelineShape& shape, Stages stages) {
  const double v = shape.chunks;
  const double turns = v - 1;  // from the last stage back to the first, as far as the farthest
  const Stages boundaries = stages.first(stages.size() - 1);
  Seconds farthest;
  for (const StageTimes& stage : boundaries) farthest = std::max(farthest, stage.transfer);

  const double middle = shape.micro_batches - turns * shape.stages / v;
  Seconds all = 2.0 * turns * farthest;
  for (const StageTimes& stage : stages) all += turns / v * compute(stage);
  for (const StageTimes& stage : boundaries) all += 2.0 * turns * stage.transfer;

  Seconds above, longest;
  for (const StageTimes& stage : stages) {
    longest = std::max(longest, all + above + middle * compute(stage));
    above += compute(stage) / v + 2.0 * stage.transfer;
  }
  return longest + stages.front().reduce + slowest_update(stages);
}

// The same path for the best cut. Of the paths that turn at each stage the longest is no shorter
// than any weighted mean of them. The weights here let the compute of every stage count alike, so
// that the mean does not depend on the cut.
Seconds least_time_of_chunks(const PipelineShape& shape, const WholePass& pass,
                             std::span<const Seconds> transfers) {
  const double v = shape.chunks;
  const double turns = v - 1;
  const double middle = shape.micro_batches - turns * shape.stages / v;
  const Seconds compute = pass.forward_and_input + pass.weight;
  Seconds farthest, sum;
  for (const Seconds t : transfers) farthest = std::max(farthest, t), sum += t;

  // From the last stage up, for a share of 1 of each stage's compute.
  double weights = 0;  // of the stages from i on
  Seconds above;       // transfers ahead of them, by their weights
  for (auto i = static_cast<std::ptrdiff_t>(transfers.size()); i >= 0; --i) {
    const double weight = (1 - weights / v) / middle;
    for (const Seconds t : transfers.first(static_cast<std::size_t>(i))) above += weight * 2.0 * t;
    weights += weight;
  }
  return turns / v * compute + 2.0 * turns * (farthest + sum) + (compute + above) / weights;
}

// Zero-bubble where W is slow: stage i starts to be busy with F_0 or, later, when B_0 comes back;
// the path leaves it with its last B and ends in the W that any stage above still has to do.
Seconds slow_weight_time(const PipelineShape& shape, Stages stages) {
  const int p = shape.stages, m = shape.micro_batches;
  Seconds longest, tail;
  Seconds down;                              // F_0 to stage i
  Seconds back = round_trip(shape, stages);  // F_0 to the last stage, B_0 up to and through stage i
  for (int i = 0; i < p; ++i) {
    const StageTimes& stage = stages[static_cast<std::size_t>(i)];
    const Seconds forward_and_back = stage.forward + stage.backward_input;
    const double ahead = std::min(p - 1 - i, m - 1);  // F that run before B_0
    const double late = std::min(i + 1, m);           // W that run after the last B

    tail = std::max(tail, late * stage.backward_weight + stage.reduce);
    const Seconds busy = std::max(down + m * 1.0 * forward_and_back,
                                  back + (m - 1.0) * forward_and_back - ahead * stage.forward);
    longest = std::max(longest, busy + (m - late) * stage.backward_weight + tail);

    down += stage.forward + stage.transfer;
    back -= stage.backward_input + stage.transfer;
    tail += stage.backward_input + stage.transfer;
  }
  return longest + slowest_update(stages);
}

}  // namespace

bool schedulable(const PipelineShape& shape) {
  if (shape.stages < 1 || shape.micro_batches < 1 || shape.chunks < 1) return false;
  const std::int64_t chunks = std::int64_t{shape.stages} * shape.chunks;
  if (chunks > limits::kPasses.high / shape.micro_batches) return false;
  if (shape.chunks == 1) return true;
  return shape.schedule == ScheduleKind::interleaved && shape.micro_batches % shape.stages == 0;
}

bool ramp_counts_after(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::gpipe:
    case ScheduleKind::one_f_one_b:
      return true;
    case ScheduleKind::interleaved:
    case ScheduleKind::zero_bubble:
      return false;
  }
  internal_failure("a schedule without a form", std::source_location::current());
}

StageWeights stage_weights(const PipelineShape& shape, int stage) {
  const double m = shape.micro_batches;
  // Every path ends with the last B of stage 0 and its reduction.
  const double reduce = stage == 0 ? 1 : 0;
  const double round_trip = stage + 1 < shape.stages ? 2 : 0;
  TimeWeights ramp{1, 1, 1, reduce, 0, round_trip};
  TimeWeights load{m, m, m, reduce, 1, ramp_counts_after(shape.schedule) ? round_trip : 0};
  switch (shape.schedule) {
    case ScheduleKind::gpipe:
      break;
    case ScheduleKind::one_f_one_b:
      // F_1 .. F_{p-1-i} run while F_0 and B_0 visit the stages below.
      load.forward -= std::min(shape.stages - 1 - stage, shape.micro_batches - 1);
      break;
    case ScheduleKind::interleaved:
      ramp.forward = ramp.backward_input = ramp.backward_weight = 1.0 / shape.chunks;
      break;
    case ScheduleKind::zero_bubble:
      // B goes up ahead of the last i + 1 W; at stage 0, where the path ends, one W follows it.
      if (stage > 0) {
        ramp.backward_weight = 0;
        load.backward_weight -= std::min(stage + 1, shape.micro_batches);
      }
      break;
  }
  return {ramp, load};
}

Seconds bottleneck_time(const PipelineShape& shape, Stages stages) {
  internal_check(schedulable(shape) && static_cast<int>(stages.size()) == shape.stages,
                 "the time of a pipeline that exists, with times for each of its stages");
  Seconds after;
  if (ramp_counts_after(shape.schedule)) {
    for (int i = 0; i < shape.stages; ++i) {
      after += stage_weights(shape, i).ramp(stages[static_cast<std::size_t>(i)]);
    }
  }
  Seconds before, longest;
  for (int i = 0; i < shape.stages; ++i) {
    const StageTimes& stage = stages[static_cast<std::size_t>(i)];
    const StageWeights weights = stage_weights(shape, i);
    const Seconds ramp = weights.ramp(stage);
    if (ramp_counts_after(shape.schedule)) after -= ramp;
    longest = std::max(longest, before + weights.load(stage) + after);
    before += ramp;
  }
  return longest;
}

Seconds transfer_time(const PipelineShape& shape, Seconds transfer) {
  const int p = shape.stages;
  // Of n micro-batches that follow the first, all but one a lap wait for a round trip.
  const auto laps = [&](int n) { return (p - 1) + n - (n + p - 1) / p; };
  const auto trips = [&] {
    switch (shape.schedule) {
      case ScheduleKind::gpipe:
        return p - 1;
      case ScheduleKind::one_f_one_b:
        return laps(shape.micro_batches - 1);
      case ScheduleKind::interleaved:
        if (shape.chunks == 1) return laps(shape.micro_batches - 1);
        return p == 1 ? 0 : p * shape.chunks - 1;
      case ScheduleKind::zero_bubble:  // W hides the transfers of all laps but the first
        return laps(std::min(shape.micro_batches - 1, p));
    }
    internal_failure("a schedule without transfers", std::source_location::current());
  };
  return 2.0 * trips() * transfer;
}

Seconds pipeline_time(const PipelineShape& shape, Stages stages) {
  const Seconds bottleneck = bottleneck_time(shape, stages);
  switch (shape.schedule) {
    case ScheduleKind::gpipe:
      return std::max(bottleneck, two_phase_time(shape, stages));
    case ScheduleKind::one_f_one_b:
      return std::max(bottleneck, longest_lap_time(shape, stages));
    case ScheduleKind::interleaved:
      return std::max(bottleneck, shape.chunks == 1 ? longest_lap_time(shape, stages)
                                                    : all_chunks_time(shape, stages));
    case ScheduleKind::zero_bubble:
      if (!splits_backward(shape)) return bottleneck;
      return std::max(
          {bottleneck, longest_lap_time(shape, stages), slow_weight_time(shape, stages)});
  }
  internal_failure("a schedule without a time", std::source_location::current());
}

Seconds least_pipeline_time(const PipelineShape& shape, const WholePass& pass,
                            std::span<const Seconds> transfers) {
  const Seconds sum = std::accumulate(transfers.begin(), transfers.end(), Seconds());
  if (shape.chunks > 1) return least_time_of_chunks(shape, pass, transfers);
  const bool split = splits_backward(shape);
  const Seconds trip = pass.forward_and_input + (split ? Seconds() : pass.weight) + 2.0 * sum;
  return num_laps(shape) * 1.0 * trip;
}

int weights_waiting(const PipelineShape& shape, int stage) {
  if (shape.schedule != ScheduleKind::zero_bubble || shape.stages == 1) return 0;
  return std::min(stage + 1, shape.micro_batches);
}

double resting_share(const PipelineShape& shape) {
  // In micro-batches of a stage. Under zero_bubble weights' gradients, a third of one, fill the
  // rest.
  const double laps = shape.schedule == ScheduleKind::zero_bubble ? 3 : shape.chunks;
  const double resting = (shape.stages - 1) / laps;
  return resting / (shape.micro_batches + resting);
}

double in_flight(const PipelineShape& shape, int stage) {
  const int p = shape.stages, m = shape.micro_batches, v = shape.chunks;
  const int to_last = p - 1 - stage;
  switch (shape.schedule) {
    case ScheduleKind::gpipe:
      return m;
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::zero_bubble:  // beside weights_waiting()
      return std::min(to_last + 1, m);
    case ScheduleKind::interleaved:
      if (v == 1) return std::min(to_last + 1, m);
      return static_cast<double>(std::min(2 * to_last + (v - 1) * p + 1, m * v)) / v;
  }
  internal_failure("a schedule without activations", std::source_location::current());
}

namespace {

// Passes of one chunk among the first `units` chunk passes: p micro-batches pass a chunk, then the
// next.
int passes_of_chunk(int units, int p, int v, int chunk) {
  return units / (p * v) * p + std::clamp(units % (p * v) - chunk * p, 0, p);
}

// Micro-batches that the emptiest chunk holds, `backwards` passes behind the stage's fullest
// moment.
int fewest_of_a_chunk(const PipelineShape& shape, int full, int backwards) {
  const int p = shape.stages, v = shape.chunks;
  int fewest = shape.micro_batches;
  for (int chunk = 0; chunk < v; ++chunk)
    fewest = std::min(fewest, passes_of_chunk(full + backwards, p, v, chunk) -
                                  passes_of_chunk(backwards, p, v, v - 1 - chunk));
  return fewest;
}

}  // namespace

HeldTogether held_together(const PipelineShape& shape, int stage) {
  const int p = shape.stages, m = shape.micro_batches, v = shape.chunks;
  if (v > 1) {
    const int full = static_cast<int>(std::lround(in_flight(shape, stage) * v));  // chunk passes
    const int backwards = (v - 1) * p + 1;  // until each chunk has had one
    const bool later = full + backwards <= m * v;
    return {fewest_of_a_chunk(shape, full, later ? backwards : 0), 0, later};
  }
  const auto full = static_cast<int>(in_flight(shape, stage));
  if (!splits_backward(shape)) return {full, 0, full < m};
  // Weight gradients are made from the pass of micro-batch p on.
  return {full, m > p ? stage : 0, m > p};
}

}  // namespace braid
