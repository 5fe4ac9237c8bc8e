// Relations between prices of one plan: on other hardware, and run twice as long.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "planner/cost/make_cost_model.h"
#include "planner/plan/legal.h"
#include "tests/relations/relations.h"

namespace braid {

namespace {

// Where a plan's devices talk. Worked out from the mesh's peers, device by device, and from nothing
// that prices them.
class Wires {
 public:
  explicit Wires(const Plan& plan) : plan_(plan), inside_(plan.cluster.groups.size()) {
    const auto& groups = plan.cluster.groups;
    for (std::size_t entry = 0; entry < groups.size(); ++entry)
      for (int node = 0; node < groups[entry].count; ++node, ++nodes_)
        for (int device = 0; device < groups[entry].devices; ++device) {
          node_.push_back(nodes_);
          entry_.push_back(entry);
        }
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
      add_groups(stage);
      if (stage + 1 < plan.shape.stages) add_boundary(stage);
    }
  }

  // Whether two devices of different nodes talk.
  bool network() const { return network_; }
  // Whether two devices of one of this entry's nodes talk.
  bool inside(std::size_t entry) const { return inside_[entry]; }

 private:
  void add(int a, int b) {
    const auto from = static_cast<std::size_t>(a), to = static_cast<std::size_t>(b);
    if (a == b) return;
    if (node_[from] != node_[to])
      network_ = true;
    else
      inside_[entry_[from]] = true;
  }

  // A block talks along each of its axes: tensors or their tokens, keys, gradients.
  void add_groups(int stage) {
    const Mesh mesh = plan_.mesh();
    const DeviceSpan devices = devices_of_stage(stage, mesh);
    const StagePlan& layers = plan_.stages[static_cast<std::size_t>(stage)];
    const std::vector<int> ids = layers_of(layers);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (plan_.model.type_of(ids[i]).shape.kind != LayerKind::block) continue;
      for (const Axis axis : {Axis::data, Axis::context, Axis::tensor})
        for (int k = 0; k < devices.count(); ++k)
          for (const int peer : peers(devices.at(k), axis, mesh, layers.strategies[i]))
            add(devices.at(k), peer);
    }
  }
  void add_boundary(int stage) {
    const DeviceSpan from = devices_of_stage(stage, plan_.mesh());
    const DeviceSpan to = devices_of_stage(stage + 1, plan_.mesh());
    for (int k = 0; k < from.count(); ++k) add(from.at(k), to.at(k));
  }

  const Plan& plan_;
  int nodes_ = 0;
  std::vector<int> node_;           // by device
  std::vector<std::size_t> entry_;  // by device
  bool network_ = false;
  std::vector<bool> inside_;  // by entry
};

double time_on(const Plan& plan, const std::function<void(Cluster&)>& change) {
  Plan changed = plan;
  change(changed.cluster);
  return price(changed).iteration.value();
}

// Times of a plan where one fact of its cluster is far worse: longer exactly where it is used.
class Facts {
 public:
  explicit Facts(const Plan& plan) : plan_(plan), time_(plan.prediction.iteration.value()) {}

  void felt(const std::string& fact, bool used, const std::function<void(Cluster&)>& worsen) {
    if (wrong_) return;
    const double worse = time_on(plan_, worsen);
    if (used && worse <= time_ * (1 + kRounding))
      wrong_ = fmt::format("{} is not felt: {:.9g} s, and {:.9g} s with a far worse one; {}", fact,
                           time_, worse, shape());
    if (!used && worse != time_)
      wrong_ = fmt::format("{} is not used, and felt: {:.9g} s, {:.9g} s with another; {}", fact,
                           time_, worse, shape());
  }
  const Violation& wrong() const { return wrong_; }

 private:
  std::string shape() const {
    std::string text = fmt::format("{} of {} stages, {}", name_of(plan_.shape.schedule),
                                   plan_.shape.stages, name_of(plan_.mesh_order));
    for (const StagePlan& stage : plan_.stages)
      text += fmt::format(", {}", to_string(stage.strategies[stage.strategies.size() / 2]));
    return text;
  }

  const Plan& plan_;
  double time_;
  Violation wrong_;
};

constexpr double kFarWorse = 1e-9;  // of a bandwidth
constexpr Seconds kLong{1e4};       // of a latency: more than any compute hides

Violation facts_are_felt(const Plan& plan) {
  const Wires wires(plan);
  const Cluster& cluster = plan.cluster;
  const bool alone = cluster.num_devices() == 1;
  Facts facts(plan);
  facts.felt("the network's bandwidth", wires.network(),
             [](Cluster& c) { c.between.bandwidth = kFarWorse * c.between.bandwidth; });
  facts.felt("the network's latency", wires.network(),
             [](Cluster& c) { c.between.latency += kLong; });
  for (std::size_t i = 0; i < cluster.groups.size(); ++i) {
    // A device's port is of its node's bandwidth, whichever way the bytes go.
    facts.felt(fmt::format("the bandwidth inside nodes of entry {}", i), !alone, [&](Cluster& c) {
      c.groups[i].inside.bandwidth = kFarWorse * c.groups[i].inside.bandwidth;
    });
    // Where none of its devices talk on a node, groups that cross may still count the latency of
    // their slowest member.
    if (wires.inside(i) || plan.mesh().stage_devices() == 1)
      facts.felt(fmt::format("the latency inside nodes of entry {}", i), wires.inside(i),
                 [&](Cluster& c) { c.groups[i].inside.latency += kLong; });
  }
  for (std::size_t i = 0; i < cluster.device_types.size(); ++i) {
    const std::string& name = cluster.device_types[i].name;
    facts.felt("the bf16 peak of " + name, true, [&](Cluster& c) {
      c.device_types[i].peak_bf16 = kFarWorse * c.device_types[i].peak_bf16;
    });
    facts.felt("the memory bandwidth of " + name, true, [&](Cluster& c) {
      c.device_types[i].memory_bandwidth = kFarWorse * c.device_types[i].memory_bandwidth;
    });
    facts.felt("the fp32 peak of " + name, false,
               [&](Cluster& c) { c.device_types[i].peak_fp32 = FlopsPerSecond(1); });
    facts.felt("the memory of " + name, false,
               [&](Cluster& c) { c.device_types[i].memory = Bytes(1); });
  }
  return facts.wrong();
}

// Each in turn half as good: the price must not fall.
Violation half_is_no_faster(const Plan& plan) {
  const double time = plan.prediction.iteration.value();
  Violation wrong;
  const auto check = [&](const std::string& fact, const std::function<void(Cluster&)>& worsen,
                         double tolerance = kRounding) {
    const double worse = time_on(plan, worsen);
    if (!wrong && worse < time * (1 - tolerance))
      wrong = fmt::format("{:.9g} s, and {:.9g} s with {}", time, worse, fact);
  };
  check("half the network", [](Cluster& c) { c.between.bandwidth = 0.5 * c.between.bandwidth; });
  check("a latency between nodes of 10 us more",
        [](Cluster& c) { c.between.latency += Seconds(1e-5); });
  for (std::size_t i = 0; i < plan.cluster.groups.size(); ++i) {
    check(fmt::format("half the bandwidth inside nodes of entry {}", i),
          [&](Cluster& c) { c.groups[i].inside.bandwidth = 0.5 * c.groups[i].inside.bandwidth; });
    check(fmt::format("10 us more inside nodes of entry {}", i),
          [&](Cluster& c) { c.groups[i].inside.latency += Seconds(1e-5); });
  }
  for (std::size_t i = 0; i < plan.cluster.device_types.size(); ++i) {
    check(
        "half the peak",
        [&](Cluster& c) { c.device_types[i].peak_bf16 = 0.5 * c.device_types[i].peak_bf16; },
        kHiddenTwice);
    check(
        "half the memory bandwidth",
        [&](Cluster& c) {
          c.device_types[i].memory_bandwidth = 0.5 * c.device_types[i].memory_bandwidth;
        },
        kHiddenTwice);
  }
  return wrong;
}

// Prices of one layer under one strategy on two stages: the first part that differs.
Violation differ(const LayerCost& a, const LayerCost& b) {
  const auto differ_by = [&](const std::string& part, double x, double y) -> Violation {
    if (std::abs(x - y) <= kRounding * std::max(std::abs(x), std::abs(y))) return std::nullopt;
    return fmt::format("{} {:.9g} and {:.9g}", part, x, y);
  };
  if (auto wrong = differ_by("forward", a.time.forward(), b.time.forward())) return wrong;
  if (auto wrong = differ_by("backward", a.time.backward_input() + a.time.backward_weight(),
                             b.time.backward_input() + b.time.backward_weight()))
    return wrong;
  if (auto wrong = differ_by("reduction", a.time.once_reduce(), b.time.once_reduce())) return wrong;
  if (auto wrong = differ_by("update", a.time.once_update(), b.time.once_update())) return wrong;
  const auto bytes = [](Bytes size) { return static_cast<double>(size.value()); };
  if (auto wrong = differ_by("states", bytes(a.memory.states()), bytes(b.memory.states())))
    return wrong;
  return differ_by("activations", bytes(a.memory.activations), bytes(b.memory.activations));
}

// The stages of a configuration, each held against the first of its class under some strategies.
Violation classes_differ(const Question& question, const CostModel& cost,
                         const Configuration& configuration,
                         const std::vector<Strategy>& strategies) {
  const Mesh mesh{question.cluster.num_devices(), configuration.shape.stages, configuration.order};
  std::map<StageClass, int> first_of;
  for (int stage = 0; stage < configuration.shape.stages; ++stage) {
    const StageSite site{mesh, configuration.shape, stage, configuration.micro_batch};
    const int first = first_of.try_emplace(cost.stage_class(site), stage).first->second;
    if (first == stage) continue;
    StageSite other = site;
    other.stage = first;
    for (std::size_t type = 0; type < question.model.types.size(); ++type)
      for (const Strategy& s : strategies) {
        const LayerShape& shape = question.model.types[type].shape;
        // Embedding and head stand on one stage each.
        if (shape.kind == LayerKind::embedding || shape.kind == LayerKind::head) continue;
        if (strategy_fault(shape, s, configuration.micro_batch)) continue;
        const int index = static_cast<int>(type);
        if (auto wrong = differ(cost.layer(index, s, site), cost.layer(index, s, other)))
          return fmt::format("layer type {} under {} on stages {} and {} of {}, {}: {}", type,
                             to_string(s), stage, first, mesh.stages, name_of(mesh.order), *wrong);
      }
  }
  return std::nullopt;
}

template <class Check>
Violation of_every_plan(const Answered& answered, Check check) {
  if (answered.plan() == nullptr) return std::nullopt;
  if (auto wrong = check(*answered.plan())) return wrong;
  for (const Alternative& alternative : answered.answer().alternatives)
    if (auto wrong = check(alternative.plan)) return "an alternative: " + *wrong;
  return std::nullopt;
}

}  // namespace

Violation every_used_fact_is_felt(const Answered& answered) {
  return of_every_plan(answered, facts_are_felt);
}

Violation better_hardware_is_no_slower_for_the_same_plan(const Answered& answered) {
  return of_every_plan(answered, half_is_no_faster);
}

// The search prices one stage of a class for all.
Violation stages_of_a_class_have_one_price(const Answered& answered) {
  constexpr int kConfigurations = 20, kStrategies = 4;
  const Question& question = answered.question();
  const DecisionTree tree =
      searched_tree(question.model, question.cluster, nullptr, options_of(question));
  if (tree.configurations.empty()) return std::nullopt;
  const auto cost = make_cost_model({.global_batch = question.global_batch}, question.model,
                                    question.cluster, nullptr);
  Dice dice(question.seed);
  for (int i = 0; i < kConfigurations; ++i) {
    const Configuration& configuration = dice.any(tree.configurations);
    const std::vector<Strategy> kept = kept_strategies(branch_of(tree, configuration.shape.stages));
    std::vector<Strategy> drawn;
    for (int k = 0; k < kStrategies; ++k) drawn.push_back(dice.any(kept));
    if (auto wrong = classes_differ(question, *cost, configuration, drawn)) return wrong;
  }
  return std::nullopt;
}

bool scatters_gradients(const Plan& plan) {
  return std::ranges::any_of(plan.stages, [](const StagePlan& stage) {
    return std::ranges::any_of(stage.strategies, [](const Strategy& s) {
      return s.zero == Zero::gradients || s.zero == Zero::parameters;
    });
  });
}

// Its micro-batches, each as large as before, twice.
Violation twice_the_batch_takes_at_most_twice_as_long(const Answered& answered) {
  if (answered.plan() == nullptr || answered.uses_front()) return std::nullopt;
  Plan twice = *answered.plan();
  twice.global_batch *= 2;
  twice.shape.micro_batches *= 2;
  verify(twice, "a plan of twice the batch");
  twice.prediction = price(twice);
  const double once = answered.plan()->prediction.iteration.value();
  const double time = twice.prediction.iteration.value();
  // Except under GPipe, stages wait for each other's transfers in every lap but the first.
  const PipelineShape& shape = answered.plan()->shape;
  double waits = 0;
  for (const StagePrediction& stage : answered.plan()->prediction.stages)
    waits += 2 * shape.micro_batches * stage.times.transfer.value();
  const bool full = shape.schedule == ScheduleKind::gpipe || shape.micro_batches >= shape.stages;
  if (shape.schedule == ScheduleKind::gpipe) waits = 0;
  // Gradients that are scattered at once have the blocks' whole backward to hide behind where that
  // is the last; behind each of several they have their own layer's.
  constexpr double kScatters = 0.03;
  const double slack =
      shape.micro_batches == 1 && scatters_gradients(*answered.plan()) ? kScatters : kRounding;
  if (full && time > (2 * once + waits) * (1 + slack))
    return fmt::format("{:.9g} s, and {:.9g} s for twice the micro-batches", once, time);
  if (!fits(twice.prediction)) return std::nullopt;  // gpipe keeps twice as many
  Question question = answered.question();
  question.global_batch *= 2;
  SearchResult known;
  known.plan = std::move(twice);
  return contradiction("twice the batch", known, ask(question));
}

}  // namespace braid
