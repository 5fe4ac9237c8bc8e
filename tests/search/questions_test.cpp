// What is measured of a model's layers: all that a plan can ask for lies between measured sizes.

#include "planner/search/questions.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "planner/core/text.h"
#include "planner/plan/legal.h"
#include "planner/search/uniform_plans.h"
#include "tests/support/random_plan.h"

namespace braid {
namespace {

using namespace literals;
using Cut = std::tuple<TensorKind, int, int>;
using Sizes = std::map<Cut, std::set<std::int64_t>>;

QuestionOptions batch_of(std::int64_t global_batch) {
  QuestionOptions options;
  options.global_batch = global_batch;
  return options;
}

Sizes sizes_of(const Questions& questions) {
  Sizes sizes;
  for (const LayerQuestion& q : questions.asked) sizes[{q.kind, q.tp, q.cp}].insert(q.samples);
  return sizes;
}

// Adds what a plan's blocks ask for.
void expect_answered(const Plan& plan, const Sizes& sizes) {
  for (const StagePlan& stage : plan.stages) {
    const std::vector<int> layers = layers_of(stage);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (plan.model.type_of(layers[i]).shape.kind != LayerKind::block) continue;
      const Strategy& s = stage.strategies[i];
      const auto found = sizes.find({s.tp_kind, s.tp, s.cp});
      ASSERT_NE(found, sizes.end()) << to_string(s);
      const std::int64_t samples = plan.micro_batch() / s.dp;
      EXPECT_LE(*found->second.begin(), samples) << to_string(s);
      EXPECT_GE(*found->second.rbegin(), samples) << to_string(s);
    }
  }
}

// A profile that answers these questions and no others.
Profile answers_to(const Questions& questions, const Model& model) {
  Profile profile;
  for (const LayerType& type : model.types) {
    if (type.shape.kind != LayerKind::block) continue;
    MeasuredLayer layer;
    layer.type = type.name;
    for (const LayerQuestion& q : questions.asked) {
      ComputeSample sample;
      sample.samples = static_cast<double>(q.samples);
      sample.sequence = type.shape.tokens;
      sample.split = q.tp;
      sample.kind = q.kind;
      sample.context = q.cp;
      sample.forward = Seconds(1e-5 + 1e-4 * sample.samples / (q.tp * q.cp));
      layer.compute.push_back(sample);
    }
    profile.layers.push_back(std::move(layer));
  }
  return profile;
}

TEST(Questions, ASmallTaskByHand) {
  // Two devices, four samples, two blocks; rings need longer sequences than 16 tokens.
  const Questions q = layer_questions(tiny_model("llama", 2, 16), tiny_cluster(2), batch_of(4));
  const Cut whole{TensorKind::megatron, 1, 1}, megatron{TensorKind::megatron, 2, 1},
      ulysses{TensorKind::ulysses, 2, 1};
  // Whole on two replicas or two stages, which need two micro-batches; split on one stage.
  const Sizes expected = {{whole, {1, 2}}, {megatron, {1, 2, 4}}, {ulysses, {1, 2, 4}}};
  EXPECT_EQ(sizes_of(q), expected);
  EXPECT_EQ(q.reachable, 8);
  EXPECT_EQ(q.possible, 3 * 2 * 3) << "three tensor splits, two rings, micro-batches of 1, 2, 4";
}

TEST(Questions, HoldWhatEveryPlanFoundAsksFor) {
  struct Case {
    const char* model;
    int blocks, devices;
    std::int64_t sequence, global_batch;
    std::vector<Rule> rules_off;
  };
  const Case cases[] = {
      {"llama", 4, 4, 16, 8, {}},
      {"llama", 6, 6, 16, 12, {}},
      {"gpt2", 4, 8, 32, 24, {Rule::ulysses_or_ring, Rule::ring_needs_tokens}},
      {"mixtral", 4, 4, 32, 16, {Rule::fill_pipeline, Rule::ring_needs_tokens}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.model) + " on " + std::to_string(c.devices));
    const Model model = tiny_model(c.model, c.blocks, c.sequence);
    const Cluster cluster = tiny_cluster(c.devices);
    SearchOptions options;
    options.global_batch = c.global_batch;
    options.space.rules_off = c.rules_off;
    QuestionOptions asks{.global_batch = c.global_batch,
                         .precision = options.precision,
                         .memory = {},
                         .space = options.space};
    const Questions all = layer_questions(model, cluster, asks);
    EXPECT_LE(all.reachable, all.possible);
    EXPECT_LE(std::ssize(all.asked), all.reachable);
    std::vector<Plan> plans = uniform_plans(model, cluster, nullptr, options);
    ASSERT_FALSE(plans.empty());
    for (const Plan& plan : plans) expect_answered(plan, sizes_of(all));
    // What the search finds in less and less memory, given a profile of what fits there.
    options.cost = CostKind::measured;
    Bytes memory = plans.front().prediction.stages.front().peak;
    for (int less = 0; less < 3; ++less) {
      options.memory_limit = asks.memory = memory;
      const Questions asked = layer_questions(model, cluster, asks);
      const Profile profile = answers_to(asked, model);
      const SearchResult found = search(model, cluster, &profile, options);
      if (!found.plan) break;
      expect_answered(*found.plan, sizes_of(asked));
      memory = scaled(found.plan->prediction.stages.front().peak, 0.99);
    }
  }
}

TEST(Questions, AreLegalOnTheDevicesThereAre) {
  const Model model = tiny_model("llama", 4, 32);  // 8 heads, 4 for keys and values
  SpaceOptions every;
  every.rules_off = {Rule::ulysses_or_ring, Rule::ring_needs_tokens};
  const Questions q = layer_questions(
      model, tiny_cluster(8),
      {.global_batch = 8, .precision = Precision::bf16, .memory = {}, .space = every});
  bool megatron8 = false;
  for (const LayerQuestion& one : q.asked) {
    EXPECT_LE(one.tp * one.cp, 8);
    const Strategy s{.tp = one.tp, .tp_kind = one.kind, .cp = one.cp};
    for (const LayerType& type : model.types)
      EXPECT_FALSE(strategy_fault(type.shape, s, one.samples)) << to_string(s);
    EXPECT_FALSE(one.kind == TensorKind::ulysses && one.tp == 8) << "more ranks than such heads";
    megatron8 |= one.kind == TensorKind::megatron && one.tp == 8;
  }
  EXPECT_TRUE(megatron8) << "megatron repeats them";
}

TEST(Questions, KeepTheFewestAndTheMostAndStepsOfTwo) {
  const Questions q = layer_questions(tiny_model("llama", 4, 16), tiny_cluster(4), batch_of(60));
  bool thinned = false;
  for (const auto& [cut, samples] : sizes_of(q)) {
    EXPECT_EQ(*samples.begin(), 1);
    const std::int64_t most = 60 / (4 / (std::get<1>(cut) * std::get<2>(cut)));
    EXPECT_EQ(*samples.rbegin(), most) << "one micro-batch on one stage";
    std::int64_t before = 0;
    for (const std::int64_t n : samples) {
      EXPECT_GE(n, n == most ? before : 2 * before);
      before = n;
    }
    thinned |= !samples.contains(3);
  }
  EXPECT_TRUE(thinned);
  EXPECT_LT(std::ssize(q.asked), q.reachable);
}

TEST(Questions, MemoryDropsOnlyWhatCannotFit) {
  const Model model = tiny_model("llama", 4, 32);
  const Cluster cluster = tiny_cluster(4);
  QuestionOptions options = batch_of(64);
  const Questions all = layer_questions(model, cluster, options);
  options.memory = 64_KiB;
  const Questions some = layer_questions(model, cluster, options);
  EXPECT_EQ(some.possible, all.possible);
  EXPECT_LT(some.reachable, all.reachable);
  EXPECT_GT(some.reachable, 0);
  // The largest layer at its thriftiest: the input it keeps and its worst moment.
  const auto need = [&](double samples) {
    double largest = 0;
    for (const LayerType& type : model.types)
      largest = std::max(
          largest, samples * static_cast<double>(
                                 (saved_bytes(type.shape, Recompute::full, Precision::bf16) +
                                  transient_bytes(type.shape, Recompute::none, Precision::bf16))
                                     .value()));
    return largest;
  };
  const Sizes kept = sizes_of(some);
  for (const auto& [cut, samples] : kept)
    EXPECT_LT(need(static_cast<double>(*samples.rbegin()) / (std::get<1>(cut) * std::get<2>(cut))),
              65536);
  for (const auto& [cut, samples] : sizes_of(all)) {
    const int ways = std::get<1>(cut) * std::get<2>(cut);
    const auto found = kept.find(cut);
    const std::int64_t most = found == kept.end() ? 0 : *found->second.rbegin();
    if (most < *samples.rbegin()) {
      // The next size that a plan has is twice as much.
      EXPECT_GE(need(std::max(1.0, 2.0 * static_cast<double>(most)) / ways), 65536);
    }
  }
}

TEST(Questions, RestrictionsOfTheSpaceHold) {
  QuestionOptions options = batch_of(8);
  options.space.max_tp = 2;
  for (const LayerQuestion& q :
       layer_questions(tiny_model("llama", 4, 16), tiny_cluster(4), options).asked)
    EXPECT_LE(q.tp, 2);
}

}  // namespace
}  // namespace braid
