// Collectives and messages over sizes, in every group that a plan can ask for. All groups of a
// shape talk at once, as they do in training.

#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>

#include "planner/core/error.h"
#include "runtime/measure/hardware_parts.h"
#include "runtime/measure/shapes.h"
#include "runtime/ops/device.h"
#include "runtime/parallel/collectives.h"

namespace braid::measure {

namespace {

constexpr double kLongest = 0.2;  // seconds of one operation
constexpr const char* kName = "measured";

// One operation on tensors of its own, over and over.
class Operation {
 public:
  // `bytes` is about what CollectiveSample means by it: rounded so that ranks share it evenly.
  Operation(Collective op, Bytes bytes, int ranks, at::ScalarType type)
      : op_(op), ranks_(ranks), type_(type) {
    const auto element = static_cast<std::int64_t>(c10::elementSize(type));
    const std::int64_t shares = op == Collective::point_to_point ? 1 : ranks;
    share_ = std::max<std::int64_t>(1, bytes.value() / element / shares);
    bytes_ = Bytes(share_ * shares * element);
  }
  Bytes bytes() const { return bytes_; }

  // In the memory that training has for it.
  void prepare(c10::Device device, comm::Group& group) {
    const auto options = at::TensorOptions(device).dtype(type_);
    const auto part = [&] { return at::zeros({share_}, options); };
    const auto whole = [&] { return at::zeros({share_ * ranks_}, options); };
    const auto in_group = [&] {
      return parallel::empty_for(group, {share_ * ranks_}, options).zero_();
    };
    switch (op_) {
      case Collective::all_gather:
        in_ = part();
        out_ = in_group();
        return;
      case Collective::reduce_scatter:
        in_ = in_group();
        out_ = part();
        return;
      case Collective::all_to_all:
        in_ = whole();
        out_ = whole();
        return;
      case Collective::all_reduce:
        in_ = out_ = in_group();
        return;
      case Collective::point_to_point:
        in_ = out_ = part();
        return;
    }
  }

  void run(comm::Group& group) const {
    const comm::Buffer in = parallel::buffer_of(in_), out = parallel::buffer_of(out_);
    switch (op_) {
      case Collective::all_reduce:
        return group.all_reduce(out, comm::Reduction::sum, kName).wait();
      case Collective::all_gather:
        return group.all_gather(in, out, kName).wait();
      case Collective::reduce_scatter:
        return group.reduce_scatter(in, out, comm::Reduction::sum, kName).wait();
      case Collective::all_to_all: {
        const std::vector<std::int64_t> even(static_cast<std::size_t>(ranks_), share_);
        return group.all_to_all(in, even, out, even, kName).wait();
      }
      case Collective::point_to_point:
        return there_and_back(group, out);
    }
  }
  // Operations of one run().
  double count() const { return op_ == Collective::point_to_point ? 2 : 1; }

 private:
  // A sender on a CPU does not learn when its message arrived: an answer says so.
  static void there_and_back(comm::Group& group, comm::Buffer buffer) {
    const int other = 1 - group.rank();
    if (group.rank() == 0) group.send(buffer, other, kName).wait();
    group.receive(buffer, other, kName).wait();
    if (group.rank() == 1) group.send(buffer, other, kName).wait();
  }

  Collective op_;
  int ranks_;
  at::ScalarType type_;
  std::int64_t share_ = 1;  // elements
  Bytes bytes_;
  at::Tensor in_, out_;
};

constexpr Collective kCollectives[] = {Collective::all_gather, Collective::reduce_scatter,
                                       Collective::all_reduce, Collective::all_to_all};

std::vector<Bytes> sizes_for(const HardwareTask& task) {
  return message_sizes(std::min(task.options.largest_message, task.room));
}

bool reduces(Collective op) {
  return op == Collective::all_reduce || op == Collective::reduce_scatter;
}

void sweep(const HardwareTask& task, ShapeGroups& groups, Collective op, Profile& profile) {
  Bench& bench = task.bench;
  const GroupShape shape = groups.shape();
  const Precision precision =
      reduces(op) ? task.options.gradient_precision : task.options.precision;
  const std::vector<Bytes> sizes = sizes_for(task);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Operation operation(op, sizes[i], shape.size, task.type_of(precision));
    const auto seconds = bench.run(
        fmt::format("{} {}x{} {}", name_of(op), shape.size, shape.stride, sizes[i].value()), [&] {
          comm::Group* group = groups.mine();
          if (group != nullptr) operation.prepare(bench.device(), *group);
          const double time = bench.time([&] {
            if (group != nullptr) operation.run(*group);
          });
          return std::vector<double>{
              group == nullptr ? 0 : among(task.bench, groups.members(), time / operation.count())};
        });
    if (!seconds) continue;
    const Seconds time(std::max(seconds->front(), 1e-9));
    profile.collectives.push_back({op, shape.size, shape.stride, operation.bytes(), time});
    const bool more = i + 1 < sizes.size();
    if (more && time.value() * (sizes[i + 1] / sizes[i]) > kLongest) {
      bench.expect(-static_cast<int>(sizes.size() - i - 1));
      return;
    }
  }
}

}  // namespace

int ShapeGroups::members() const {
  const int block = shape_.size * shape_.stride;
  return world_.size() / block * block;
}

comm::Group* ShapeGroups::mine() {
  if (!made_) {
    const int rank = world_.rank();
    const int place = rank / shape_.stride % shape_.size;
    group_ = world_.split(rank < members() ? rank - place * shape_.stride : -1, rank,
                          fmt::format("{}x{}", shape_.size, shape_.stride));
    made_ = true;
  }
  return group_.get();
}

int num_collective_measurements(const HardwareTask& task) {
  const int ranks = task.bench.world().size();
  const auto sweeps =
      std::size(kCollectives) * group_shapes(ranks).size() + message_distances(ranks).size();
  return static_cast<int>(sweeps * sizes_for(task).size());
}

void measure_collectives(const HardwareTask& task, Profile& profile) {
  comm::Group& world = task.bench.world();
  const std::vector<GroupShape> shapes = group_shapes(world.size());
  std::vector<int> distances = message_distances(world.size());
  for (const GroupShape& shape : shapes) {
    ShapeGroups groups(world, shape);
    for (const Collective op : kCollectives) sweep(task, groups, op, profile);
    if (shape.size == 2 && std::erase(distances, shape.stride) > 0)
      sweep(task, groups, Collective::point_to_point, profile);
    ops::release_cached(task.bench.device());
  }
  for (const int distance : distances) {
    ShapeGroups groups(world, {2, distance});
    sweep(task, groups, Collective::point_to_point, profile);
  }
}

std::optional<Line> message_line(const Profile& profile, Collective op, GroupShape group) {
  Points points;
  for (const CollectiveSample& s : profile.collectives)
    if (s.op == op && s.ranks == group.size && s.stride == group.stride)
      points.emplace_back(static_cast<double>(s.bytes.value()), s.seconds.value());
  if (points.size() < 2) return std::nullopt;
  const Line line = fit_relative_line(points);
  if (line.slope > 0) return line;
  // So noisy that larger messages seem to be faster.
  return Line{points.back().second / points.back().first, 0};
}

}  // namespace braid::measure
