#include "tests/relations/relations.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "planner/core/json.h"
#include "planner/cost/make_cost_model.h"
#include "planner/simulate/price_plan.h"

namespace braid {

namespace {

bool same(double a, double b) { return std::abs(a - b) <= kRounding * std::max(a, b); }
bool at_most(double a, double b) { return a <= b * (1 + kRounding); }

std::string in_words(const SearchResult& result) {
  if (!result.plan) return "no plan";
  return fmt::format("{:.9g} s (bound {:.9g} s)", time_of(result), bound_of(result));
}

// The same cluster described otherwise: the same time. How far an open bound has come may depend on
// which stages are priced together.
Violation differs(const std::string& what, const Answered& answered, const Cluster& cluster) {
  Question question = answered.question();
  question.cluster = cluster;
  const SearchResult other = ask(question);
  const SearchResult& answer = answered.answer();
  const bool equal = answer.plan && other.plan ? same(time_of(other), time_of(answer)) &&
                                                     at_most(bound_of(other), time_of(answer))
                                               : answer.plan.has_value() == other.plan.has_value();
  if (equal) return std::nullopt;
  return fmt::format("{}: {}, before {}", what, in_words(other), in_words(answer));
}

// ---- an answer by itself ----

Violation wrong_with(const Plan& plan) {
  verify(plan, "a plan that was found");
  const std::string text = plan_text(plan);
  const Plan read = plan_from_json(parse_json(text, "plan"), "plan");
  if (plan_text(read) != text) return "its file, read and written, differs";
  const Prediction again = price(read);
  if (!same(again.iteration.value(), plan.prediction.iteration.value()))
    return fmt::format("{:.9g} s, priced again {:.9g} s", plan.prediction.iteration.value(),
                       again.iteration.value());
  for (std::size_t i = 0; i < again.stages.size(); ++i) {
    const StagePrediction& stage = plan.prediction.stages[i];
    if (again.stages[i].peak != stage.peak || again.stages[i].budget != stage.budget)
      return fmt::format("stage {} needs {} of {} bytes, priced again {} of {}", i,
                         stage.peak.value(), stage.budget.value(), again.stages[i].peak.value(),
                         again.stages[i].budget.value());
    if (stage.peak > stage.budget)
      return fmt::format("stage {} needs {} of {} bytes", i, stage.peak.value(),
                         stage.budget.value());
  }
  return std::nullopt;
}

Violation the_answer_is_sound(const Answered& answered) {
  const SearchResult& answer = answered.answer();
  if (!answer.plan) {
    if (!answer.infeasible) return "neither a plan nor a reason";
    const Plan& closest = answer.infeasible->closest;
    if (!closest.stages.empty() && fits(closest.prediction)) return "the closest plan fits";
    return std::nullopt;
  }
  if (auto wrong = wrong_with(*answer.plan)) return wrong;
  const Certificate& certificate = answer.plan->certificate;
  if (certificate.lower_bound < Seconds()) return "the bound is negative";
  for (const Seconds bound : {certificate.lower_bound, certificate.physics_bound})
    if (!at_most(bound.value(), time_of(answer)))
      return fmt::format("{:.9g} s, and bounds {:.9g} and {:.9g} s", time_of(answer),
                         certificate.lower_bound.value(), certificate.physics_bound.value());
  for (const Alternative& alternative : answer.alternatives) {
    if (auto wrong = wrong_with(alternative.plan)) return "an alternative: " + *wrong;
    if (alternative.plan.prediction.iteration < answer.plan->prediction.iteration)
      return "an alternative is faster than the plan";
  }
  return std::nullopt;
}

Violation no_plan_is_below_the_bound(const Answered& answered) {
  if (answered.plan() == nullptr) return std::nullopt;
  SearchResult known;
  known.plan = fastest_of_a_walk(answered);
  Violation wrong = contradiction("a plan near the answer", known, answered.answer());
  if (wrong) *wrong += "\n" + plan_text(*known.plan);
  return wrong;
}

// ---- the same question again ----

Violation threads_change_nothing(const Answered& answered) {
  SearchOptions options = options_of(answered.question());
  options.threads = 2;
  const SearchResult other = ask(answered.question(), options);
  const Plan* plan = answered.plan();
  const bool equal = plan != nullptr && other.plan ? plan_text(*other.plan) == plan_text(*plan)
                                                   : plan == nullptr && !other.plan;
  if (equal) return std::nullopt;
  return fmt::format("two threads: {}, one: {}", in_words(other), in_words(answered.answer()));
}

Violation entries_of_equal_nodes_are_one(const Answered& answered) {
  const Cluster& cluster = answered.question().cluster;
  Cluster apart = cluster, together = cluster;
  apart.groups.clear(), together.groups.clear();
  for (const NodeGroup& group : cluster.groups) {
    NodeGroup node = group;
    node.count = 1;
    apart.groups.insert(apart.groups.end(), static_cast<std::size_t>(group.count), node);
    NodeGroup* last = together.groups.empty() ? nullptr : &together.groups.back();
    if (last != nullptr && last->device_type == group.device_type &&
        last->devices == group.devices && last->inside.bandwidth == group.inside.bandwidth &&
        last->inside.latency == group.inside.latency) {
      last->count += group.count;
    } else {
      together.groups.push_back(group);
    }
  }
  if (apart.groups.size() > cluster.groups.size())
    if (auto wrong = differs("one entry for each node", answered, apart)) return wrong;
  if (together.groups.size() < cluster.groups.size())
    return differs("one entry for equal nodes", answered, together);
  return std::nullopt;
}

Violation names_of_devices_say_nothing(const Answered& answered) {
  Cluster cluster = answered.question().cluster;
  const int types = static_cast<int>(cluster.device_types.size());
  std::ranges::reverse(cluster.device_types);
  for (NodeGroup& group : cluster.groups) group.device_type = types - 1 - group.device_type;
  // Every entry's devices under a name of their own.
  Cluster renamed = cluster;
  renamed.device_types.clear();
  for (std::size_t i = 0; i < cluster.groups.size(); ++i) {
    renamed.device_types.push_back(
        cluster.device_types[static_cast<std::size_t>(cluster.groups[i].device_type)]);
    renamed.device_types.back().name = fmt::format("device{}", i);
    renamed.groups[i].device_type = static_cast<int>(i);
  }
  if (types > 1)
    if (auto wrong = differs("device types in reverse", answered, cluster)) return wrong;
  return differs("every entry its own device type", answered, renamed);
}

// ---- more room ----

Violation more_memory_is_no_slower(const Answered& answered) {
  Question larger = answered.question();
  for (DeviceType& device : larger.cluster.device_types) device.memory = 2 * device.memory;
  if (auto wrong = contradiction("devices of twice the memory", answered.answer(), ask(larger)))
    return wrong;
  if (answered.question().memory_limit == Bytes()) return std::nullopt;
  Question roomier = answered.question();
  roomier.memory_limit = scaled(roomier.memory_limit, 1.2);
  return contradiction("a higher limit", answered.answer(), ask(roomier));
}

// Whatever a plan needs is enough for it, and what is said to be enough where nothing fits.
Violation the_memory_of_the_plan_is_enough(const Answered& answered) {
  Question question = answered.question();
  Bytes& limit = question.memory_limit;
  if (answered.plan() == nullptr) {
    const std::optional<Bytes> enough = answered.answer().infeasible->enough_memory;
    if (!enough) return std::nullopt;
    if (limit > Bytes()) limit = std::max(limit, *enough);
    for (DeviceType& device : question.cluster.device_types)
      device.memory = std::max(device.memory, *enough);
    const SearchResult other = ask(question);
    if (other.plan) return std::nullopt;
    return fmt::format("{} bytes are said to be enough and are not{}", enough->value(),
                       fits(other.infeasible->closest.prediction) ? ", but a plan fits" : "");
  }
  limit = Bytes();
  for (const StagePrediction& stage : answered.plan()->prediction.stages)
    limit = std::max(limit, stage.peak);
  return contradiction(fmt::format("a limit of the plan's peak, {} bytes", limit.value()),
                       answered.answer(), ask(question));
}

// ---- faster hardware ----

Violation faster(const std::string& what, const Answered& answered, const Cluster& cluster) {
  Question question = answered.question();
  question.cluster = cluster;
  return contradiction(what, answered.answer(), ask(question));
}

Violation faster_links_are_no_slower(const Answered& answered) {
  if (answered.uses_front()) return std::nullopt;
  Cluster inside = answered.question().cluster;
  for (NodeGroup& group : inside.groups) group.inside.bandwidth = 2 * group.inside.bandwidth;
  if (auto wrong = faster("twice the bandwidth inside nodes", answered, inside)) return wrong;
  Cluster between = answered.question().cluster;
  between.between.bandwidth = 2 * between.between.bandwidth;
  if (auto wrong = faster("twice the bandwidth between nodes", answered, between)) return wrong;
  Cluster prompt = answered.question().cluster;
  prompt.between.latency = Seconds();
  for (NodeGroup& group : prompt.groups) group.inside.latency = Seconds();
  return faster("no latency", answered, prompt);
}

// Up to what faster compute hides less of (price_relations.cpp).
Violation faster_devices_are_no_slower(const Answered& answered) {
  if (answered.uses_front() || answered.plan() == nullptr) return std::nullopt;
  Cluster cluster = answered.question().cluster;
  for (DeviceType& device : cluster.device_types) {
    device.peak_bf16 = 1.5 * device.peak_bf16;
    device.memory_bandwidth = 1.5 * device.memory_bandwidth;
  }
  Question question = answered.question();
  question.cluster = cluster;
  SearchResult known = answered.answer();
  known.plan->prediction.iteration = (1 + kHiddenTwice) * known.plan->prediction.iteration;
  return contradiction("devices of one and a half the speed", known, ask(question));
}

// ---- one node as several ----

// Joined by a network as fast as the links inside, and without latency, nodes are one node. Of one
// mesh order: the others, which the space of one node does not have, move other parts of a tensor
// where the layout changes.
Violation a_node_is_several_joined_by_its_links(const Answered& answered) {
  Question one = answered.question();
  one.space.primepar = false;  // its front is of a machine's power-of-two groups
  one.space.mesh_orders = {MeshOrder::pp_dp_cp_tp};
  one.cluster.groups = {one.cluster.groups.front()};
  NodeGroup& node = one.cluster.groups.front();
  node.count = 1;
  node.device_type = 0;
  node.devices = std::min(8, answered.question().cluster.num_devices());
  node.inside.latency = Seconds();
  one.cluster.device_types.resize(1);
  one.cluster.between = node.inside;
  Question several = one;
  NodeGroup& part = several.cluster.groups.front();
  part.count = node.devices % 2 == 0 ? 2 : node.devices;
  part.devices = node.devices / part.count;
  const SearchResult whole = ask(one), parts = ask(several);
  if (auto wrong = contradiction("one node, then several", whole, parts)) return wrong;
  if (auto wrong = contradiction("several nodes, then one", parts, whole)) return wrong;
  for (const SearchResult* result : {&whole, &parts}) {
    if (!result->plan) continue;
    Plan plan = *result->plan;
    plan.cluster = one.cluster;
    const double time = price(plan).iteration.value();
    plan.cluster = several.cluster;
    const double apart = price(plan).iteration.value();
    if (!same(time, apart))
      return fmt::format("a plan takes {:.9g} s on one node and {:.9g} s on {}", time, apart,
                         part.count);
  }
  return std::nullopt;
}

// ---- other searches of the same space ----

Violation others_are_above_the_bound(const Answered& answered) {
  for (const Algorithm algorithm :
       {Algorithm::galvatron, Algorithm::bmw, Algorithm::dp, Algorithm::zero3, Algorithm::tp,
        Algorithm::pp, Algorithm::megatron_3d}) {
    SearchOptions options = options_of(answered.question());
    options.algorithm = algorithm;
    options.prove = false;
    const SearchResult other = ask(answered.question(), options);
    if (auto wrong = contradiction(name_of(algorithm), other, answered.answer())) return wrong;
    if (other.plan && !at_most(time_of(answered.answer()), time_of(other)))
      return fmt::format("{} finds {:.9g} s, exact {}", name_of(algorithm), time_of(other),
                         in_words(answered.answer()));
    if (other.plan)
      if (auto wrong = wrong_with(*other.plan)) return name_of(algorithm) + ": " + *wrong;
  }
  return std::nullopt;
}

// Heuristic rules prune nothing of what is proven, and a proven rule nothing that is faster.
Violation rules_are_no_part_of_the_bound(const Answered& answered) {
  SearchOptions all = options_of(answered.question());
  for (const RuleInfo& rule : pruning_rules()) {
    if (rule.rule == Rule::unmeasured_squares) continue;  // widens what is proven
    all.space.rules_off.push_back(rule.rule);
    if (rule.heuristic) continue;
    SearchOptions options = options_of(answered.question());
    options.space.rules_off.push_back(rule.rule);
    const SearchResult other = ask(answered.question(), options);
    const std::string what = fmt::format("without rule {}", rule.name);
    if (auto wrong = contradiction(what, other, answered.answer())) return wrong;
    if (auto wrong = contradiction("and with it", answered.answer(), other))
      return what + " " + *wrong;
  }
  SearchOptions balanced = all;
  balanced.algorithm = Algorithm::bmw;
  balanced.prove = false;
  if (auto wrong =
          contradiction("bmw without rules", ask(answered.question(), balanced), answered.answer()))
    return wrong;
  const SearchResult other = ask(answered.question(), all);
  if (auto wrong = contradiction("without rules", other, answered.answer())) return wrong;
  return contradiction("with rules, then without", answered.answer(), other);
}

Violation a_smaller_space_is_no_faster(const Answered& answered) {
  const auto restricted = [&](const std::string& what, auto restrict) -> Violation {
    SearchOptions options = options_of(answered.question());
    restrict(options.space);
    return contradiction(what, ask(answered.question(), options), answered.answer());
  };
  if (auto wrong = restricted("max_tp 1", [](SpaceOptions& s) { s.max_tp = 1; })) return wrong;
  if (auto wrong = restricted("max_pp 1", [](SpaceOptions& s) { s.max_pp = 1; })) return wrong;
  if (auto wrong = restricted("no recomputation", [](SpaceOptions& s) { s.recompute = false; }))
    return wrong;
  if (auto wrong = restricted("even cuts", [](SpaceOptions& s) { s.even_cuts = true; }))
    return wrong;
  if (auto wrong = restricted("without PrimePar", [](SpaceOptions& s) { s.primepar = false; }))
    return wrong;
  if (!answered.question().space.schedules.empty()) return std::nullopt;
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                  ScheduleKind::interleaved, ScheduleKind::zero_bubble})
    if (auto wrong = restricted(name_of(kind), [&](SpaceOptions& s) { s.schedules = {kind}; }))
      return wrong;
  return std::nullopt;
}

// The answer is in the space that has just its degrees, schedule and order.
Violation the_plan_is_in_its_own_space(const Answered& answered) {
  const Plan* plan = answered.plan();
  if (plan == nullptr) return std::nullopt;
  SearchOptions options = options_of(answered.question());
  SpaceOptions& space = options.space;
  space.max_pp = plan->shape.stages;
  space.schedules = {plan->shape.schedule};
  space.mesh_orders = {plan->mesh_order};
  space.max_tp = space.max_cp = 1;
  bool recomputes = false;
  for (const StagePlan& stage : plan->stages)
    for (const Strategy& s : stage.strategies) {
      space.max_tp = std::max(space.max_tp, s.tp);
      space.max_cp = std::max(space.max_cp, s.cp);
      recomputes |= s.recompute != Recompute::none;
    }
  space.recompute = recomputes;
  const SearchResult narrow = ask(answered.question(), options);
  if (auto wrong = contradiction("the plan's own space", answered.answer(), narrow)) return wrong;
  return contradiction("the plan's own space, then all", narrow, answered.answer());
}

// The parts in which all layers of a plan agree, and its configuration.
FixedParts parts_of(const Plan& plan) {
  const Strategy block = plan.stages.front().strategies[1];
  FixedParts parts;
  const auto add = [&](auto FixedParts::*part, auto value) {
    parts.*part = value;
    for (const StagePlan& stage : plan.stages) {
      const std::vector<int> layers = layers_of(stage);
      for (std::size_t i = 0; i < layers.size(); ++i)
        if (!parts.allows(plan.model.type_of(layers[i]).shape, stage.strategies[i],
                          plan.micro_batch()))
          (parts.*part).reset();
    }
  };
  add(&FixedParts::tp, block.tp);
  add(&FixedParts::tp_kind, block.tp_kind);
  add(&FixedParts::cp, block.cp);
  add(&FixedParts::dp, block.dp);
  add(&FixedParts::ep, block.ep);
  add(&FixedParts::zero, block.zero);
  add(&FixedParts::recompute, block.recompute);
  add(&FixedParts::replica_samples, plan.micro_batch() / block.dp);
  parts.stages = plan.shape.stages;
  parts.chunks = plan.shape.chunks;
  parts.micro_batches = plan.shape.micro_batches;
  return parts;
}

bool is_proven(const SearchResult& result) {
  return result.plan && at_most(time_of(result), bound_of(result));
}

// The plan is in the space that its own parts leave, which is smaller: what is proven to be fastest
// is found there again.
Violation the_plan_keeps_its_own_parts(const Answered& answered) {
  if (answered.plan() == nullptr) return std::nullopt;
  SearchOptions options = options_of(answered.question());
  options.space.fixed = parts_of(*answered.plan());
  const SearchResult fixed = ask(answered.question(), options);
  const std::string what = "with " + options.space.fixed.to_string();
  if ((is_proven(answered.answer()) || is_proven(fixed)) &&
      !at_most(time_of(fixed), time_of(answered.answer())))
    return fmt::format("{}: {}, without {}", what, in_words(fixed), in_words(answered.answer()));
  if (auto wrong = contradiction("without, then " + what, answered.answer(), fixed)) return wrong;
  return contradiction(what, fixed, answered.answer());
}

// No plan with a fixed part is below the bound without it.
Violation a_fixed_part_is_no_faster(const Answered& answered) {
  const auto fixed = [&](const FixedParts& parts) -> Violation {
    SearchOptions options = options_of(answered.question());
    options.space.fixed = parts;
    SearchResult result;
    try {
      result = ask(answered.question(), options);
    } catch (const Error&) {  // not possible for this model or cluster
      return std::nullopt;
    }
    const std::string what = "with " + parts.to_string();
    if (is_proven(answered.answer()) && !at_most(time_of(answered.answer()), time_of(result)))
      return fmt::format("{}: {}, without {}", what, in_words(result), in_words(answered.answer()));
    return contradiction(what, result, answered.answer());
  };
  for (const FixedParts& parts :
       {FixedParts{.tp = 2}, FixedParts{.dp = 2}, FixedParts{.stages = 2},
        FixedParts{.zero = Zero::gradients}, FixedParts{.recompute = Recompute::full},
        FixedParts{.replica_samples = 1}})
    if (auto wrong = fixed(parts)) return wrong;
  return std::nullopt;
}

constexpr Relation kRelations[] = {
    {"the answer is sound", 0, the_answer_is_sound},
    {"every used fact is felt", 0, every_used_fact_is_felt},
    {"better hardware is no slower for the same plan", 0,
     better_hardware_is_no_slower_for_the_same_plan},
    {"stages of a class have one price", 0, stages_of_a_class_have_one_price},
    {"no plan is below the bound", 0, no_plan_is_below_the_bound},
    {"twice the batch takes at most twice as long", 1, twice_the_batch_takes_at_most_twice_as_long},
    {"threads change nothing", 1, threads_change_nothing},
    {"entries of equal nodes are one", 1, entries_of_equal_nodes_are_one},
    {"names of devices say nothing", 2, names_of_devices_say_nothing},
    {"more memory is no slower", 2, more_memory_is_no_slower},
    {"the memory of the plan is enough", 1, the_memory_of_the_plan_is_enough},
    {"faster links are no slower", 3, faster_links_are_no_slower},
    {"faster devices are no slower", 1, faster_devices_are_no_slower},
    {"a node is several joined by its links", 2, a_node_is_several_joined_by_its_links},
    {"others are above the bound", 4, others_are_above_the_bound},
    {"rules are no part of the bound", 3, rules_are_no_part_of_the_bound},
    {"a smaller space is no faster", 8, a_smaller_space_is_no_faster},
    {"the plan is in its own space", 1, the_plan_is_in_its_own_space},
    {"the plan keeps its own parts", 1, the_plan_keeps_its_own_parts},
    {"a fixed part is no faster", 6, a_fixed_part_is_no_faster},
};

}  // namespace

Answered::Answered(Question question) : question_(std::move(question)), answer_(ask(question_)) {}

bool Answered::uses_front() const {
  if (plan() == nullptr || !question_.space.applies(Rule::unmeasured_squares)) return false;
  return std::ranges::any_of(plan()->stages, [](const StagePlan& stage) {
    return std::ranges::any_of(stage.strategies, [](const Strategy& s) {
      return s.tp_kind == TensorKind::spatial_temporal;
    });
  });
}

std::span<const Relation> all_relations() { return kRelations; }

SearchResult ask(const Question& question, const SearchOptions& options) {
  return search(question.model, question.cluster, nullptr, options);
}
SearchResult ask(const Question& question) { return ask(question, options_of(question)); }

double time_of(const SearchResult& result) {
  return result.plan ? result.plan->prediction.iteration.value() : kForever.value();
}
double bound_of(const SearchResult& result) {
  return result.plan ? result.plan->certificate.lower_bound.value() : kForever.value();
}

Prediction price(const Plan& plan) {
  const auto cost = make_cost_model({.kind = plan.cost,
                                     .precision = plan.precision,
                                     .gradient_precision = plan.gradient_precision,
                                     .global_batch = plan.global_batch},
                                    plan.model, plan.cluster, nullptr);
  return price_plan(plan, *cost);
}

bool fits(const Prediction& prediction) {
  return std::ranges::all_of(
      prediction.stages, [](const StagePrediction& stage) { return stage.peak <= stage.budget; });
}

Violation contradiction(const std::string& what, const SearchResult& narrower,
                        const SearchResult& wider) {
  if (!narrower.plan) return std::nullopt;
  if (!wider.plan)
    return fmt::format("{}: no plan, where {:.9g} s is known", what, time_of(narrower));
  if (at_most(bound_of(wider), time_of(narrower))) return std::nullopt;
  return fmt::format("{}: bound {:.9g} s (plan {:.9g} s), where {:.9g} s is known", what,
                     bound_of(wider), time_of(wider), time_of(narrower));
}

}  // namespace braid
