#include "tests/referee/schedule.h"

#include <algorithm>

#include "planner/core/error.h"

namespace braid::referee {

namespace {

using List = std::vector<Operation>;

// All forwards, then all backwards.
List gpipe(int m) {
  List list;
  for (int k = 0; k < m; ++k) list.push_back({Pass::forward, 0, k});
  for (int k = 0; k < m; ++k) list.push_back({Pass::backward, 0, k});
  return list;
}

// As many forwards ahead as stages follow, then a forward and a backward in turn.
List one_forward_one_backward(int p, int m, int stage) {
  List list;
  int next = 0;
  for (; next < std::min(p - 1 - stage, m); ++next) list.push_back({Pass::forward, 0, next});
  for (int done = 0; done < m; ++done) {
    if (next < m) list.push_back({Pass::forward, 0, next++});
    list.push_back({Pass::backward, 0, done});
  }
  return list;
}

// Narayanan et al. (2021): groups of p micro-batches pass one chunk, then the next; backwards begin
// with the last chunk.
List interleaved(int p, int m, int v, int stage) {
  List forwards, backwards;
  for (int group = 0; group < m; group += p)
    for (int chunk = 0; chunk < v; ++chunk)
      for (int k = group; k < group + p; ++k) {
        forwards.push_back({Pass::forward, chunk, k});
        backwards.push_back({Pass::backward, v - 1 - chunk, k});
      }
  List list;
  auto forward = forwards.begin();
  const int ahead = 2 * (p - 1 - stage) + (v - 1) * p;
  for (int k = 0; k < ahead && forward != forwards.end(); ++k) list.push_back(*forward++);
  for (const Operation& backward : backwards) {
    if (forward != forwards.end()) list.push_back(*forward++);
    list.push_back(backward);
  }
  return list;
}

// ZB-H1 (Qi et al., 2024): 1F1B with backward in two parts, of which the weights' is `stage`
// micro-batches behind the input's.
List zero_bubble(int p, int m, int stage) {
  List list;
  for (const Operation& op : one_forward_one_backward(p, m, stage)) {
    if (op.pass == Pass::forward) {
      list.push_back(op);
      continue;
    }
    list.push_back({Pass::backward_input, 0, op.micro_batch});
    if (op.micro_batch >= stage) list.push_back({Pass::backward_weight, 0, op.micro_batch - stage});
  }
  for (int k = std::max(0, m - stage); k < m; ++k) list.push_back({Pass::backward_weight, 0, k});
  return list;
}

class Player {
 public:
  Player(const PipelineShape& shape, const std::vector<StageSeconds>& stages)
      : shape_(shape), stages_(stages), clocks_(stages.size()) {
    const auto arrivals = static_cast<std::size_t>(shape.stages) *
                          static_cast<std::size_t>(shape.chunks) *
                          static_cast<std::size_t>(shape.micro_batches);
    activations_.assign(arrivals, kNotSent);
    gradients_.assign(arrivals, kNotSent);
  }

  double play() {
    std::vector<List> lists;
    for (int stage = 0; stage < shape_.stages; ++stage)
      lists.push_back(operations_of(shape_, stage));
    std::vector<std::size_t> next(lists.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < lists.size(); ++s)
        while (next[s] < lists[s].size() && run(static_cast<int>(s), lists[s][next[s]])) {
          ++next[s];
          moved = true;
        }
    }
    double reduced = 0, update = 0;
    for (std::size_t s = 0; s < lists.size(); ++s) {
      internal_check(next[s] == lists[s].size(), "a schedule that comes to its end");
      reduced = std::max(reduced, clocks_[s] + stages_[s].reduce);
      update = std::max(update, stages_[s].update);
    }
    return reduced + update;
  }

 private:
  static constexpr double kNotSent = -1;

  std::size_t at(int virtual_stage, int micro_batch) const {
    return static_cast<std::size_t>(virtual_stage) *
               static_cast<std::size_t>(shape_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }

  // False if the input has not been sent yet.
  bool run(int stage, const Operation& op) {
    const int p = shape_.stages, here = op.chunk * p + stage, last = p * shape_.chunks - 1;
    const auto s = static_cast<std::size_t>(stage);
    const ChunkSeconds& seconds = stages_[s].chunks[static_cast<std::size_t>(op.chunk)];
    double& now = clocks_[s];
    if (op.pass == Pass::backward_weight) {
      now += seconds.backward_weight;
      return true;
    }
    const bool forward = op.pass == Pass::forward;
    auto& arrivals = forward ? activations_ : gradients_;
    if (here != (forward ? 0 : last)) {
      const double arrival = arrivals[at(here, op.micro_batch)];
      if (arrival == kNotSent) return false;
      now = std::max(now, arrival);
    }
    now += forward ? seconds.forward : seconds.backward_input;
    if (op.pass == Pass::backward) now += seconds.backward_weight;
    const int there = here + (forward ? 1 : -1);
    if (there < 0 || there > last) return true;
    // The wire of a boundary belongs to the stage on its upper side.
    const auto boundary = static_cast<std::size_t>(std::min(here, there) % p);
    const double wire = p > 1 ? stages_[boundary].to_next : 0;
    arrivals[at(there, op.micro_batch)] = now + wire;
    return true;
  }

  const PipelineShape& shape_;
  const std::vector<StageSeconds>& stages_;
  std::vector<double> clocks_;
  std::vector<double> activations_, gradients_;  // when they arrive
};

}  // namespace

std::vector<Operation> operations_of(const PipelineShape& shape, int stage) {
  const int p = shape.stages, m = shape.micro_batches;
  switch (shape.schedule) {
    case ScheduleKind::gpipe:
      return gpipe(m);
    case ScheduleKind::one_f_one_b:
      return one_forward_one_backward(p, m, stage);
    case ScheduleKind::interleaved:
      if (shape.chunks > 1) return interleaved(p, m, shape.chunks, stage);
      return one_forward_one_backward(p, m, stage);
    case ScheduleKind::zero_bubble:
      if (p > 1) return zero_bubble(p, m, stage);
      return one_forward_one_backward(p, m, stage);
  }
  return {};
}

double play(const PipelineShape& shape, const std::vector<StageSeconds>& stages) {
  return Player(shape, stages).play();
}

}  // namespace braid::referee
