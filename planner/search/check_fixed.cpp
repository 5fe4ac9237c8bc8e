// What fixed parts of a plan need from model, cluster and batch, and from each other.

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "planner/core/text.h"
#include "planner/plan/legal.h"
#include "planner/search/decision_tree.h"
#include "planner/search/fixed_parts.h"

namespace braid {

namespace {

[[noreturn]] void fail(std::string what, std::string where, std::string fix) {
  throw Error({.what = std::move(what), .where = std::move(where), .fix = std::move(fix)});
}

// "--tp-kind" of the field "tp_kind". A square is asked for by its kind.
std::string flag_of(const std::string& field) {
  if (field == "square" || field == "variant") return "--tp-kind";
  std::string flag = "--" + field;
  std::ranges::replace(flag, '_', '-');
  return flag;
}

// Beyond any number of devices or samples; times one more degree it still fits in an integer.
constexpr std::int64_t kFar = std::int64_t{1} << 40;

class FixedCheck {
 public:
  FixedCheck(const SpaceOptions& space, const Model& model, const Cluster& cluster,
             std::int64_t batch)
      : space_(space),
        fixed_(space.fixed),
        model_(model),
        cluster_(cluster),
        batch_(batch),
        devices_(cluster.num_devices()),
        blocks_(model.num_layers() - 2) {}

  // In this order: each check relies on those before it.
  void run() const {
    check_limits();
    check_stages();
    check_product();
    check_experts();
    check_layers();
    check_states();
    check_batch();
    check_schedule();
    check_together();
  }

 private:
  static void check_limit(const char* name, const std::optional<int>& part, int most) {
    if (part && most > 0 && *part > most)
      fail(fmt::format("--{} {} is beyond --max-{} {}", name, *part, name, most),
           fmt::format("--{}", name), fmt::format("leave --max-{} out", name));
  }

  void check_limits() const {
    check_limit("tp", fixed_.tp, space_.max_tp);
    check_limit("cp", fixed_.cp, space_.max_cp);
    check_limit("pp", fixed_.stages, space_.max_pp);
    if (!space_.recompute && fixed_.recompute && *fixed_.recompute != Recompute::none)
      fail("--no-recompute forbids what --recompute asks for", "--recompute",
           "leave one of them out");
  }

  void check_stages() const {
    if (!fixed_.stages) return;
    const int stages = *fixed_.stages;
    std::vector<int> choices;
    for (const int n : divisors(devices_))
      if (n <= blocks_) choices.push_back(n);
    const std::string fix = fmt::format("choose pp from {}", join(choices, ", "));
    if (devices_ % stages != 0)
      fail(fmt::format("{} stages do not share {} devices evenly", stages, devices_), "--pp", fix);
    if (stages > blocks_)
      fail(fmt::format("{} stages for {} blocks: a stage needs one", stages, blocks_), "--pp", fix);
  }

  // The degrees that are fixed fill the cluster, or divide it where one is open.
  void check_product() const {
    std::int64_t product = 1;
    std::vector<std::string> factors, flags;
    int open = 0;
    const auto add = [&](const char* name, const std::optional<int>& degree) {
      if (!degree) {
        ++open;
        return;
      }
      if (product <= kFar) product *= *degree;
      factors.push_back(fmt::format("{}={}", name, *degree));
      flags.push_back(fmt::format("--{}", name));
    };
    add("pp", fixed_.stages);
    add("tp", fixed_.tp);
    add("cp", fixed_.cp);
    add("dp", fixed_.dp);
    const bool fits = open == 0 ? product == devices_ : devices_ % product == 0;
    if (fits) return;
    std::string sum = join(factors, " · ");
    if (factors.size() > 1) sum += fmt::format(" = {}", product);
    if (open > 0)
      fail(fmt::format("{} does not divide the cluster's {} devices", sum, devices_),
           join(flags, ", "), fmt::format("choose degrees whose product divides {}", devices_));
    fail(fmt::format("{} devices, where the cluster has {}", sum, devices_), join(flags, ", "),
         fmt::format("make their product {}, leave one of them out, or use part of the cluster "
                     "with --devices",
                     devices_));
  }

  void check_experts() const {
    if (!fixed_.ep || *fixed_.ep == 1) return;
    const int ep = *fixed_.ep;
    std::int64_t experts = 0;
    for (const LayerType& type : model_.types) experts = std::gcd(experts, type.shape.experts);
    if (experts == 0)
      fail(fmt::format("ep={}: the model has no experts", ep), "--ep", "leave it out");
    if (experts % ep != 0)
      fail(fmt::format("ep={} does not divide the {} experts", ep, experts), "--ep",
           fmt::format("choose ep from {}", join(divisors(static_cast<int>(experts)), ", ")));
    if (fixed_.dp && *fixed_.dp % ep != 0)
      fail(fmt::format("ep={} does not divide dp={}", ep, *fixed_.dp), "--ep",
           "choose an ep that divides experts and dp");
  }

  // The kinds of tensor parallelism that a layer may have, squares with each side.
  std::vector<Strategy> tensor_choices(const LayerShape& layer) const {
    const int tp = fixed_.tp.value_or(1);
    std::vector<Strategy> choices;
    for (const TensorKind kind : {TensorKind::megatron, TensorKind::ulysses}) {
      const Strategy s{.tp = tp, .tp_kind = kind, .cp = fixed_.cp.value_or(1)};
      if (fixed_.allows(layer, with_fixed(s, layer))) choices.push_back(s);
    }
    for (const int side : {2, 4}) {
      const Strategy s{.tp = tp,
                       .tp_kind = TensorKind::spatial_temporal,
                       .cp = fixed_.cp.value_or(1),
                       .square = side};
      if (tp > 1 && fixed_.allows(layer, with_fixed(s, layer))) choices.push_back(s);
    }
    return choices;
  }
  Strategy with_fixed(Strategy s, const LayerShape& layer) const {
    s.dp = fixed_.dp.value_or(1);
    s.zero = fixed_.zero.value_or(Zero::none);
    s.ep = layer.experts > 0 ? fixed_.ep.value_or(1) : 1;
    if (layer.kind != LayerKind::embedding && layer.kind != LayerKind::head)
      s.recompute = fixed_.recompute.value_or(Recompute::none);
    return s;
  }

  // tp and cp by themselves, for every type of layer.
  void check_layers() const {
    if (!fixed_.tp && !fixed_.cp) return;
    for (const LayerType& type : model_.types) {
      std::optional<Mistake> first;
      bool possible = false;
      for (const Strategy& s : tensor_choices(type.shape)) {
        constexpr std::int64_t kSamples = 1 << 10;  // enough for the rows of any square
        const auto fault = strategy_fault(type.shape, s, kSamples);
        possible = possible || !fault;
        if (fault && !first) first = describe(*fault, type.shape, s, kSamples);
      }
      if (possible || !first) continue;
      fail(fmt::format("{} in layers '{}'", first->what, type.name), flag_of(first->where),
           first->fix);
    }
  }

  void check_states() const {
    if (!fixed_.zero || *fixed_.zero == Zero::none) return;
    const bool all_stages = fixed_.tp && fixed_.stages && *fixed_.tp * *fixed_.stages == devices_;
    const bool alone = (fixed_.dp && *fixed_.dp == 1 && fixed_.cp && *fixed_.cp == 1) || all_stages;
    const bool ulysses = !fixed_.tp_kind || *fixed_.tp_kind == TensorKind::ulysses;
    if (devices_ > 1 && !(alone && (!ulysses || fixed_.tp.value_or(2) == 1))) return;
    fail(fmt::format("zero={} shares states among replicas, and there are none",
                     static_cast<int>(*fixed_.zero)),
         "--zero", "leave it out, or raise dp");
  }

  void check_batch() const {
    const std::int64_t dp = fixed_.dp.value_or(1);
    const std::int64_t count = fixed_.micro_batches.value_or(1);
    const std::int64_t samples = fixed_.replica_samples.value_or(1);
    if (batch_ % count != 0)
      fail(fmt::format("{} micro-batches do not divide a global batch of {}", count, batch_),
           "--micro-batches",
           fmt::format("choose from {}", join(divisors(static_cast<int>(batch_)), ", ")));
    std::int64_t product = count;
    for (const std::int64_t factor : {dp, samples})
      if (product <= kFar) product *= factor;
    const bool all = fixed_.dp && fixed_.micro_batches && fixed_.replica_samples;
    if (all ? product == batch_ : batch_ % product == 0) return;
    std::vector<std::string> flags;
    if (fixed_.replica_samples) flags.emplace_back("--micro-batch");
    if (fixed_.dp) flags.emplace_back("--dp");
    if (fixed_.micro_batches) flags.emplace_back("--micro-batches");
    fail(fmt::format("{} sample{} on each of {} replica{} in {} micro-batch{} make {} samples, "
                     "which {} the global batch of {}",
                     samples, samples == 1 ? "" : "s", dp, dp == 1 ? "" : "s", count,
                     count == 1 ? "" : "es", product, all ? "are not" : "do not divide", batch_),
         join(flags, ", "),
         fmt::format("choose --global-batch {}, or leave one of them out",
                     all || product > batch_ ? product : batch_ / product * product));
  }

  void check_schedule() const {
    if (!fixed_.chunks) return;
    const int chunks = *fixed_.chunks;
    const bool interleaved =
        space_.schedules.empty() ||
        std::ranges::find(space_.schedules, ScheduleKind::interleaved) != space_.schedules.end();
    if (chunks > 1 && !interleaved)
      fail(fmt::format("--chunks {}: the schedules asked for have one chunk a stage", chunks),
           "--chunks", "leave it out, or add --schedule interleaved");
    if (chunks > 1 && fixed_.stages.value_or(2) == 1)
      fail(fmt::format("--chunks {}: one stage has one chunk", chunks), "--chunks",
           "leave it out, or raise --pp");
    const std::int64_t parts = std::int64_t{chunks} * fixed_.stages.value_or(1);
    if (chunks > 1 && blocks_ % parts != 0)
      fail(fmt::format("{} chunk{} do not share the {} blocks evenly", parts,
                       fixed_.stages ? "s of all stages" : "s", blocks_),
           "--chunks", "choose chunks so that stages · chunks divides the blocks");
    const bool only_interleaved =
        space_.schedules.size() == 1 && space_.schedules[0] == ScheduleKind::interleaved;
    if (chunks == 1 && only_interleaved && fixed_.stages.value_or(1) > 1)
      fail("--chunks 1: interleaved stages have several", "--chunks",
           "choose from 2 on, or --schedule 1f1b");
  }

  // Some configuration leaves every type of layer a legal strategy.
  void check_together() const {
    SpaceOptions space = space_;
    space.all_configurations = true;
    const DecisionTree tree = build_tree(model_, cluster_, batch_, space);
    std::optional<std::string> why;
    for (const Configuration& c : tree.configurations)
      if (leaves_choices(branch_of(tree, c.shape.stages), c, why)) return;
    fail(why ? fmt::format("no plan keeps all of {}: {}", fixed_.to_string(), *why)
             : fmt::format("no pipeline of this model, cluster and batch keeps all of {}",
                           fixed_.to_string()),
         fixed_.to_string(), "leave one of them out");
  }

  bool leaves_choices(const TreeBranch& branch, const Configuration& c,
                      std::optional<std::string>& why) const {
    return std::ranges::all_of(model_.types, [&](const LayerType& type) {
      for (const TreeLeaf& leaf : branch.leaves) {
        const Strategy& s = leaf.strategy;
        if (!fixed_.allows(type.shape, s, c.micro_batch)) continue;
        const auto fault = strategy_fault(type.shape, s, c.micro_batch);
        if (!fault) return true;
        if (!why)
          why = fmt::format("{} in layers '{}'",
                            describe(*fault, type.shape, s, c.micro_batch).what, type.name);
      }
      return false;
    });
  }

  const SpaceOptions& space_;
  const FixedParts& fixed_;
  const Model& model_;
  const Cluster& cluster_;
  std::int64_t batch_;
  int devices_, blocks_;
};

}  // namespace

void check_fixed(const SpaceOptions& space, const Model& model, const Cluster& cluster,
                 std::int64_t global_batch) {
  if (space.fixed.any()) FixedCheck(space, model, cluster, global_batch).run();
}

}  // namespace braid
