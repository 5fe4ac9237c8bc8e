// How long ranks wait for each other where they meet again and again, as they do at every
// collective of a tensor-parallel layer, and where they meet rarely, as at the end of a step. Ranks
// on CPUs share cores, caches and memory with whatever else runs, and it is the slowest of a group
// that the others wait for.

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "runtime/measure/hardware_parts.h"

namespace braid::measure {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProducts[] = {1, 4, 16, 64};  // between two meetings
constexpr std::int64_t kRows = 256, kWidth = 512;

bool applies(const HardwareTask& task) {
  return task.bench.device().is_cpu() && task.bench.world().size() > 1;
}

std::vector<GroupShape> meeting_groups(const HardwareTask& task) {
  std::vector<GroupShape> groups;
  for (int size = 2; size <= task.bench.world().size(); size *= 2) groups.push_back({size, 1});
  return groups;
}

class Work {
 public:
  Work()
      : left_(at::randn({kRows, kWidth})),
        right_(at::randn({kWidth, kWidth})),
        out_(at::empty({kRows, kWidth})) {}
  void operator()(int products) {
    for (int i = 0; i < products; ++i) at::mm_out(out_, left_, right_);
  }

 private:
  at::Tensor left_, right_, out_;
};

// Of one repetition; where they are far apart a few do.
int meetings_after(int products) { return std::clamp(128 / products, 2, 12); }

template <class Body>
double seconds_of(int times, Body body) {
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) body();
  return std::chrono::duration<double>(Clock::now() - begin).count() / times;
}

// Seconds of what is computed between two meetings, and how many of them are waited.
struct Waits {
  double apart = 0, waited = 0;
};

Waits meet(Bench& bench, comm::Group* group, int products) {
  constexpr const char* kName = "a meeting";
  Work work;
  const int times = meetings_after(products);
  // One after the other in each repetition, so that all three see the same machine.
  const std::vector<double> parts = bench.time_parts([&] {
    if (group == nullptr) return std::vector<double>(3);
    const double alone = seconds_of(times, [&] { work(products); });
    group->barrier(kName);
    const double together = seconds_of(times, [&] {
      work(products);
      group->barrier(kName);
    });
    return std::vector<double>{alone, together, seconds_of(times, [&] { group->barrier(kName); })};
  });
  return {parts[0], std::max(0.0, parts[1] - parts[0] - parts[2])};
}

}  // namespace

int num_meeting_measurements(const HardwareTask& task) {
  return applies(task) ? static_cast<int>(meeting_groups(task).size() * std::size(kProducts)) : 0;
}

void measure_meetings(const HardwareTask& task, Profile& profile) {
  if (!applies(task)) return;
  for (const GroupShape shape : meeting_groups(task)) {
    ShapeGroups groups(task.bench.world(), shape);
    for (const int products : kProducts) {
      const auto found =
          task.bench.run(fmt::format("meetings of {} after {}", shape.size, products), [&] {
            const Waits waits = meet(task.bench, groups.mine(), products);
            return std::vector<double>{among(task.bench, groups.members(), waits.apart),
                                       among(task.bench, groups.members(), waits.waited)};
          });
      if (!found) continue;
      const double apart = std::max((*found)[0], 1e-9);
      profile.meetings.push_back({shape.size, Seconds(apart), (*found)[1] / apart});
    }
  }
}

}  // namespace braid::measure
