// How compute and communication slow each other down while both run.

#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "planner/core/error.h"
#include "runtime/measure/hardware_parts.h"
#include "runtime/measure/shapes.h"
#include "runtime/ops/device.h"
#include "runtime/parallel/collectives.h"

namespace braid::measure {

namespace {

constexpr const char* kName = "beside compute";
constexpr int kMessages = 4;  // operations under way at once
// Below a fifth of its speed an operation's progress cannot be told from noise.
constexpr double kLeastSpeed = 0.2;
constexpr Collective kBeside[] = {Collective::all_gather, Collective::reduce_scatter,
                                  Collective::all_reduce};

// Neighbours of every number. On CPUs operations advance inside calls alone, in all groups alike.
std::vector<GroupShape> shapes_for(const HardwareTask& task) {
  const int ranks = task.bench.world().size();
  std::vector<GroupShape> shapes = group_shapes(ranks);
  std::erase_if(shapes, [&](const GroupShape& shape) {
    return shape.stride > 1 || (task.bench.device().is_cpu() && shape.size < ranks);
  });
  return shapes;
}

// Sized so that communication takes about twice as long as compute: it is still under way when
// compute ends.
struct Load {
  std::int64_t width = 0;  // of square matrices
  int products = 1;
  Bytes message;
};

const GemmSample* layer_sized(const Profile& profile, double longest) {
  const GemmSample* best = nullptr;
  for (const GemmSample& gemm : profile.gemms) {
    if (gemm.precision != profile.precision || gemm.m != gemm.n || gemm.m != gemm.k) continue;
    const double seconds = 2 * std::pow(static_cast<double>(gemm.m), 3) / gemm.rate.value();
    if (best == nullptr || (gemm.m > best->m && seconds <= longest)) best = &gemm;
  }
  return best;
}

std::optional<Load> load_for(const HardwareTask& task, const Profile& profile, Collective op,
                             GroupShape group) {
  const double compute = task.bench.device().is_cpu() ? 0.03 : 0.01;  // seconds
  const GemmSample* gemm = layer_sized(profile, compute / 2);
  const auto line = message_line(profile, op, group);
  if (gemm == nullptr || !line || !(line->slope > 0)) return std::nullopt;
  Load load;
  load.width = gemm->m;
  const double wanted = (2 * compute / kMessages - line->offset) / line->slope;
  const double most = static_cast<double>(
      std::min(task.room / (2 * kMessages), task.options.largest_message).value());
  load.message =
      Bytes(static_cast<std::int64_t>(std::clamp(wanted, std::min(65536.0, most), most)));
  const double messages = kMessages * (*line)(static_cast<double>(load.message.value()));
  const double product = 2 * std::pow(static_cast<double>(load.width), 3) / gemm->rate.value();
  load.products = std::max(1, static_cast<int>(messages / 2 / product));
  return load;
}

// The operations of one repetition, each on tensors of its own.
class Messages {
 public:
  Messages(const HardwareTask& task, Collective op, comm::Group* group, Bytes message)
      : op_(op), group_(group) {
    if (group == nullptr) return;
    const bool sums = op == Collective::all_reduce || op == Collective::reduce_scatter;
    const auto options =
        at::TensorOptions(task.bench.device())
            .dtype(task.type_of(sums ? task.options.gradient_precision : task.options.precision));
    const std::int64_t element = sums && task.options.gradient_precision == Precision::fp32 ? 4 : 2;
    const std::int64_t share = std::max<std::int64_t>(1, message.value() / element / group->size());
    for (int i = 0; i < kMessages; ++i) {
      parts_.push_back(at::zeros({share}, options));
      wholes_.push_back(at::zeros({share * group->size()}, options));
    }
  }

  std::vector<comm::Handle> start() const {
    std::vector<comm::Handle> handles;
    for (std::size_t i = 0; i < parts_.size(); ++i) handles.push_back(start(i));
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
std::vector<double> time_both(const HardwareTask& task, const Load& load,
                              const Messages& messages) {
  const c10::Device device = task.bench.device();
  const auto options = at::TensorOptions(device).dtype(task.type_of(task.options.precision));
  const at::Tensor a = at::ones({load.width, load.width}, options);
  const at::Tensor b = at::ones({load.width, load.width}, options);
  at::Tensor c = at::ones({load.width, load.width}, options);
  const auto compute = [&] {
    for (int i = 0; i < load.products; ++i) at::matmul_out(c, a, b);
  };
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

void measure_overlap(const HardwareTask& task, Collective op, ShapeGroups& groups,
                     Profile& profile) {
  const GroupShape shape = groups.shape();
  const auto load = load_for(task, profile, op, shape);
  if (!load) {
    task.bench.expect(-1);
    return;
  }
  const auto seconds =
      task.bench.run(fmt::format("overlap {} {}x{}", name_of(op), shape.size, shape.stride), [&] {
        comm::Group* group = groups.mine();
        const Messages messages(task, op, group, load->message);
        std::vector<double> mine = time_both(task, *load, messages);
        for (double& value : mine)
          value = group == nullptr ? 0 : task.among(groups.members(), value);
        return mine;
      });
  if (seconds) profile.overlaps.push_back(overlap_of(op, shape.size, *seconds));
}

}  // namespace

OverlapSample overlap_of(Collective op, int ranks, const std::vector<double>& seconds) {
  const double compute = seconds[0], beside = seconds[1], hidden = seconds[2];
  // What does not advance disturbs nobody.
  if (hidden < kLeastSpeed * beside) return {op, ranks, 1, kNoProgress};
  return {op, ranks, std::clamp(beside / compute, 1.0, kNoProgress),
          std::clamp(beside / hidden, 1.0, kNoProgress)};
}

int num_overlap_measurements(const HardwareTask& task) {
  const auto groups = shapes_for(task).size();
  return groups == 0 ? 0 : static_cast<int>(std::size(kBeside) * groups) + 1;
}

void measure_overlaps(const HardwareTask& task, Profile& profile) {
  comm::Group& world = task.bench.world();
  if (world.size() == 1) return;
  for (const GroupShape& shape : shapes_for(task)) {
    ShapeGroups groups(world, shape);
    for (const Collective op : kBeside) measure_overlap(task, op, groups, profile);
  }
  ShapeGroups pairs(world, {2, 1});
  measure_overlap(task, Collective::point_to_point, pairs, profile);
  double slowdown = 0;
  for (const OverlapSample& found : profile.overlaps)
    if (found.communication < kNoProgress)
      slowdown = std::max({slowdown, found.compute, found.communication});
  constexpr double kMost = 100;  // that a profile's file takes
  if (slowdown > 0) profile.overlap_slowdown = std::min(slowdown, kMost);
}

}  // namespace braid::measure
