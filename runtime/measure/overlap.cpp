// How compute and communication slow each other down while both run.

#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "planner/core/error.h"
#include "runtime/measure/hardware_parts.h"
#include "runtime/measure/overlap.h"
#include "runtime/measure/shapes.h"
#include "runtime/ops/device.h"
#include "runtime/parallel/collectives.h"

namespace braid::measure {

namespace {

constexpr const char* kName = "beside compute";
constexpr int kBuffers = 4;  // that operations take in turn
constexpr int kMost = 64;    // operations under way at once
// Below this share of its speed an operation's progress cannot be told from noise.
double least_speed(c10::Device device) { return device.is_cpu() ? 0.2 : 0.05; }
constexpr Collective kBeside[] = {Collective::all_gather, Collective::reduce_scatter,
                                  Collective::all_reduce};

// Neighbours of every number. On CPUs operations advance inside calls alone, in all groups alike.
std::vector<GroupShape> shapes_for(const OverlapTask& task) {
  const int ranks = task.bench.world().size();
  std::vector<GroupShape> shapes = group_shapes(ranks);
  std::erase_if(shapes, [&](const GroupShape& shape) {
    return shape.stride > 1 || (task.bench.device().is_cpu() && shape.size < ranks);
  });
  return shapes;
}

const GemmSample* layer_sized(const Profile& profile, double longest) {
  const GemmSample* best = nullptr;
  for (const GemmSample& gemm : profile.gemms) {
    if (gemm.precision != profile.precision || gemm.m != gemm.n || gemm.m != gemm.k) continue;
    const double seconds = 2 * std::pow(static_cast<double>(gemm.m), 3) / gemm.rate.value();
    if (best == nullptr || (gemm.m > best->m && seconds <= longest)) best = &gemm;
  }
  return best;
}

// Square products, where no layers are known.
std::optional<Company> products(const OverlapTask& task, const Profile& profile) {
  // In seconds. A product leaves no processor of a GPU to an operation that comes after it: one
  // that takes longer than a layer's would hold operations up as none does in training.
  const c10::Device device = task.bench.device();
  const double compute = device.is_cpu() ? 0.03 : 0.01, longest = device.is_cpu() ? 0.015 : 0.001;
  const GemmSample* gemm = layer_sized(profile, longest);
  if (gemm == nullptr) return std::nullopt;
  const double one = 2 * std::pow(static_cast<double>(gemm->m), 3) / gemm->rate.value();
  const int times = std::max(1, static_cast<int>(compute / one));
  const auto options = at::TensorOptions(device).dtype(task.values);
  const at::Tensor a = at::empty({gemm->m, gemm->m}, options).normal_();
  const at::Tensor b = at::empty({gemm->m, gemm->m}, options).normal_();
  at::Tensor c = at::empty({gemm->m, gemm->m}, options);
  return Company{.name = "overlap",
                 .compute =
                     [=]() mutable {
                       for (int i = 0; i < times; ++i) at::matmul_out(c, a, b);
                     },
                 .seconds = times * one};
}

at::ScalarType type_of(const OverlapTask& task, Collective op) {
  return op == Collective::all_reduce || op == Collective::reduce_scatter ? task.sums : task.values;
}
std::int64_t element_of(const OverlapTask& task, Collective op) {
  return static_cast<std::int64_t>(c10::elementSize(type_of(task, op)));
}

// Communication takes about twice as long as compute: it is still under way when compute ends.
struct Load {
  Bytes message;
  int messages = 1;
};

std::optional<Load> load_for(const OverlapTask& task, const Profile& profile, Collective op,
                             GroupShape group, const Company& company) {
  const auto line = message_line(profile, op, group);
  if (!line || !(line->slope > 0)) return std::nullopt;
  const double most =
      static_cast<double>(std::min(task.room / (2 * kBuffers), task.largest_message).value());
  const double wanted =
      company.elements > 0
          ? static_cast<double>(company.elements) * static_cast<double>(element_of(task, op))
          : (2 * company.seconds / kBuffers - line->offset) / line->slope;
  Load load;
  load.message =
      Bytes(static_cast<std::int64_t>(std::clamp(wanted, std::min(65536.0, most), most)));
  const double one = (*line)(static_cast<double>(load.message.value()));
  load.messages = std::clamp(static_cast<int>(std::ceil(2 * company.seconds / one)), 1, kMost);
  return load;
}

// The operations of one repetition. They follow each other, and so can share tensors.
class Messages {
 public:
  Messages(const OverlapTask& task, Collective op, comm::Group* group, const Load& load)
      : op_(op), group_(group), messages_(load.messages) {
    if (group == nullptr) return;
    const auto options = at::TensorOptions(task.bench.device()).dtype(type_of(task, op));
    const std::int64_t share =
        std::max<std::int64_t>(1, load.message.value() / element_of(task, op) / group->size());
    for (int i = 0; i < std::min(kBuffers, messages_); ++i) {
      parts_.push_back(at::zeros({share}, options));
      const std::int64_t whole = share * group->size();
      // In the memory that training has for it.
      wholes_.push_back(op == Collective::point_to_point
                            ? at::zeros({whole}, options)
                            : parallel::empty_for(*group, {whole}, options).zero_());
    }
  }

  std::vector<comm::Handle> start() const {
    std::vector<comm::Handle> handles;
    for (int i = 0; i < messages_ && !parts_.empty(); ++i)
      handles.push_back(start(static_cast<std::size_t>(i) % parts_.size()));
    return handles;
  }

 private:
  comm::Handle start(std::size_t i) const {
    const comm::Buffer part = parallel::buffer_of(parts_[i]);
    const comm::Buffer whole = parallel::buffer_of(wholes_[i]);
    switch (op_) {
      case Collective::all_reduce:
        return group_->all_reduce(whole, comm::Reduction::sum, kName);
      case Collective::all_gather:
        return group_->all_gather(part, whole, kName);
      case Collective::reduce_scatter:
        return group_->reduce_scatter(whole, part, comm::Reduction::sum, kName);
      case Collective::all_to_all:
        break;
      case Collective::point_to_point: {
        // Both ways at once, as activations and gradients pass each other; so both ranks see all.
        const std::int64_t half = whole.count / 2;
        auto* second = static_cast<std::byte*>(whole.data) + half * comm::bytes_of(whole.type);
        const int other = 1 - group_->rank();
        const comm::Outgoing out{{whole.data, half, whole.type}, other};
        const comm::Incoming in{{second, half, whole.type}, other};
        return group_->exchange({&out, 1}, {&in, 1}, kName);
      }
    }
    internal_failure("no overlap is measured with this", std::source_location::current());
  }

  Collective op_;
  comm::Group* group_;
  int messages_;
  std::vector<at::Tensor> parts_, wholes_;
};

// Three of four repetitions hid more: a difference of noisy times must not pass for progress. The
// first two are left out, which are warm-up.
double lower_quartile(std::vector<double> values) {
  constexpr std::ptrdiff_t kWarmUp = 2;
  if (std::ssize(values) > 2 * kWarmUp) values.erase(values.begin(), values.begin() + kWarmUp);
  std::ranges::sort(values);
  return values[values.size() / 4];
}

// Seconds of compute alone, of compute beside communication, and those of communication that were
// hidden. Each repetition takes all of them, so that load from elsewhere falls on all alike.
std::vector<double> time_both(const OverlapTask& task, const std::function<void()>& compute,
                              const Messages& messages) {
  const c10::Device device = task.bench.device();
  const auto wait = [](std::vector<comm::Handle> handles) {
    for (comm::Handle& handle : handles) handle.wait();
  };
  const auto begin_together = [&] {
    ops::synchronise(device);
    task.bench.world().barrier("beside each other");
    return ops::Mark::now(device);
  };
  std::vector<double> hidden;
  std::vector<double> seconds = task.bench.time_parts([&] {
    const ops::Mark alone = begin_together();
    compute();
    const ops::Mark alone_computed = ops::Mark::now(device);
    const ops::Mark sending = begin_together();
    wait(messages.start());
    const ops::Mark sent = ops::Mark::now(device);
    const ops::Mark begin = begin_together();
    auto handles = messages.start();
    const ops::Mark started = ops::Mark::now(device);
    compute();
    const ops::Mark computed = ops::Mark::now(device);
    wait(std::move(handles));
    const ops::Mark end = ops::Mark::now(device);
    ops::synchronise(device);
    const double beside = computed.since(started);
    // What starting takes, before compute begins, and waiting after it is not hidden.
    const double exposed = end.since(begin) - beside;
    hidden.push_back(sent.since(sending) - exposed);
    return std::vector<double>{alone_computed.since(alone), beside};
  });
  seconds.push_back(lower_quartile(std::move(hidden)));
  return seconds;
}

void measure_overlap(const OverlapTask& task, Collective op, ShapeGroups& groups,
                     const Company& company, Profile& profile) {
  const GroupShape shape = groups.shape();
  const auto load = load_for(task, profile, op, shape, company);
  if (!load) {
    task.bench.expect(-1);
    return;
  }
  const auto seconds = task.bench.run(
      fmt::format("{} {} {}x{}", company.name, name_of(op), shape.size, shape.stride), [&] {
        comm::Group* group = groups.mine();
        const Messages messages(task, op, group, *load);
        std::vector<double> mine = time_both(task, company.compute, messages);
        for (double& value : mine)
          value = group == nullptr ? 0 : among(task.bench, groups.members(), value);
        return mine;
      });
  if (!seconds) return;
  OverlapSample found = overlap_of(op, shape.size, *seconds, least_speed(task.bench.device()));
  if (found.communication < kNoProgress && task.bench.device().is_cuda())
    found.block = company.block;
  const auto same = std::ranges::find_if(profile.overlaps, [&](const OverlapSample& before) {
    return before.op == op && before.ranks == shape.size;
  });
  if (same != profile.overlaps.end())
    *same = found;
  else
    profile.overlaps.push_back(found);
}

}  // namespace

OverlapSample overlap_of(Collective op, int ranks, const std::vector<double>& seconds,
                         double least) {
  const double compute = seconds[0], beside = seconds[1], hidden = seconds[2];
  // What does not advance disturbs nobody.
  if (hidden < least * beside) return {op, ranks, 1, kNoProgress};
  return {op, ranks, std::clamp(beside / compute, 1.0, kNoProgress),
          std::clamp(beside / hidden, 1.0, kNoProgress)};
}

int num_overlap_measurements(const OverlapTask& task) {
  const auto groups = shapes_for(task).size();
  return groups == 0 ? 0 : static_cast<int>(std::size(kBeside) * groups) + 1;
}

void measure_overlaps(const OverlapTask& task, Profile& profile) {
  if (task.bench.world().size() == 1) return;
  if (const auto company = products(task, profile))
    measure_overlaps(task, *company, profile);
  else
    task.bench.expect(-num_overlap_measurements(task));
}

void measure_overlaps(const OverlapTask& task, const Company& company, Profile& profile) {
  comm::Group& world = task.bench.world();
  if (world.size() == 1) return;
  for (const GroupShape& shape : shapes_for(task)) {
    ShapeGroups groups(world, shape);
    for (const Collective op : kBeside) measure_overlap(task, op, groups, company, profile);
  }
  ShapeGroups pairs(world, {2, 1});
  measure_overlap(task, Collective::point_to_point, pairs, company, profile);
  double slowdown = 0;
  for (const OverlapSample& found : profile.overlaps)
    if (found.communication < kNoProgress)
      slowdown = std::max({slowdown, found.compute, found.communication});
  constexpr double kMostThatFits = 100;  // into a profile's file
  if (slowdown > 0) profile.overlap_slowdown = std::min(slowdown, kMostThatFits);
}

}  // namespace braid::measure
