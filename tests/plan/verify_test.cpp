// Each way in which a plan file can be wrong, with the place that its message names.

#include <gtest/gtest.h>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "tests/plan/sample_plan.h"
#include "tests/support/mistakes.h"

namespace braid {
namespace {

constexpr MistakeCase kFileMistakes[] = {
    {"another format", R"([{"op": "replace", "path": "/format", "value": "braid.model"}])",
     "this file is a 'braid.model', not a 'braid.plan'", "plan.json"},
    {"another version", R"([{"op": "replace", "path": "/version", "value": 2}])", "version 2",
     "plan.json"},
    {"an unknown key", R"([{"op": "add", "path": "/schedul", "value": "gpipe"}])",
     "unknown key 'schedul'; did you mean 'schedule'", "plan.json"},
    {"an unknown key of a strategy",
     R"([{"op": "add", "path": "/stages/0/strategies/1/tp_kid", "value": 1}])",
     "unknown key 'tp_kid'; did you mean 'tp_kind'", "plan.json: stages[0].strategies[1]"},
    {"an unknown term",
     R"([{"op": "add", "path": "/prediction/stages/1/memory/weight", "value": 1}])",
     "unknown key 'weight'; did you mean 'weights'", "plan.json: prediction.stages[1].memory"},
    {"a missing key", R"([{"op": "remove", "path": "/certificate/algorithm"}])",
     "the key 'algorithm' is missing", "plan.json: certificate"},
    {"a Hugging Face model", R"([{"op": "replace", "path": "/model", "value": {}}])",
     "the key 'format' is missing", "plan.json: model"},
    {"a model's own mistake", R"([{"op": "replace", "path": "/model/layers/1/count", "value": 0}])",
     "0 is out of range", "plan.json: model.layers[1].count"},
    {"a cluster's own mistake", R"([{"op": "replace", "path": "/cluster/nodes", "value": []}])",
     "no nodes", "plan.json: cluster.nodes"},
    {"an unknown cost", R"([{"op": "replace", "path": "/cost", "value": "rooflin"}])",
     "did you mean 'roofline'", "plan.json: cost"},
    {"an unknown schedule", R"([{"op": "replace", "path": "/schedule", "value": "1fb1"}])",
     "did you mean '1f1b'", "plan.json: schedule"},
    {"ZeRO-4", R"([{"op": "replace", "path": "/stages/0/strategies/0/zero", "value": 4}])",
     "4 is out of range", "plan.json: stages[0].strategies[0].zero"},
    {"a degree of none", R"([{"op": "replace", "path": "/stages/0/strategies/0/cp", "value": 0}])",
     "0 is out of range", "plan.json: stages[0].strategies[0].cp"},
    {"a range of three", R"([{"op": "add", "path": "/stages/0/chunks/0/2", "value": 7}])",
     "two bounds, not 3", "plan.json: stages[0].chunks[0]"},
    {"half a byte", R"([{"op": "replace", "path": "/prediction/stages/0/peak", "value": 0.5}])",
     "expected a whole number", "plan.json: prediction.stages[0].peak"},
    {"a time that is no number",
     R"([{"op": "replace", "path": "/prediction/iteration", "value": null}])", "expected a number",
     "plan.json: prediction.iteration"},
    {"a run longer than the model",
     R"([{"op": "replace", "path": "/stages/0/strategies/1/layers", "value": 9000}])",
     "more than the model's 10 layers", "plan.json: stages[0].strategies[1].layers"},
    {"a stage without a prediction", R"([{"op": "remove", "path": "/prediction/stages/1"}])",
     "predictions for 1 stages of 2", "plan.json: prediction"},
};

constexpr MistakeCase kPipelineMistakes[] = {
    {"gradients that are rounded more than the model",
     R"([{"op": "replace", "path": "/precision", "value": "fp32"},
         {"op": "replace", "path": "/gradient_precision", "value": "bf16"}])",
     "gradients in bf16 of a model that computes in fp32", "plan.json: gradient_precision"},
    {"no stage", R"([{"op": "replace", "path": "/stages", "value": []}])", "0 stages",
     "plan.json: stages"},
    {"devices that the stages cannot share",
     R"([{"op": "replace", "path": "/cluster/nodes/0/devices", "value": 7}])",
     "2 stages do not share 7 devices", "plan.json: stages"},
    {"micro-batches that do not divide",
     R"([{"op": "replace", "path": "/micro_batches", "value": 5}])",
     "5 micro-batches do not divide a global batch of 32", "plan.json: micro_batches"},
    {"chunks that are not interleaved", R"([{"op": "replace", "path": "/chunks", "value": 2}])",
     "2 chunks a stage under '1f1b'", "plan.json: chunks"},
    {"interleaved micro-batches in broken groups",
     R"([{"op": "replace", "path": "/schedule", "value": "interleaved"},
         {"op": "replace", "path": "/chunks", "value": 2},
         {"op": "replace", "path": "/micro_batches", "value": 1}])",
     "do not pass 2 stages in whole groups", "plan.json: micro_batches"},
    {"a stage with fewer chunks than the plan",
     R"([{"op": "replace", "path": "/schedule", "value": "interleaved"},
         {"op": "replace", "path": "/chunks", "value": 2}])",
     "stage 0 has 1 chunks of layers, the plan 2", "plan.json: stages[0].chunks"},
    {"chunks in the order of stages, not of virtual stages",
     R"([{"op": "replace", "path": "/schedule", "value": "interleaved"},
         {"op": "replace", "path": "/chunks", "value": 2},
         {"op": "replace", "path": "/stages/0/chunks", "value": [[0, 3], [3, 5]]},
         {"op": "replace", "path": "/stages/1/chunks", "value": [[5, 8], [8, 10]]}])",
     "layers 5 to 8 stand where layer 3 must follow", "plan.json: stages[1].chunks[0]"},
    {"a layer left out", R"([{"op": "replace", "path": "/stages/1/chunks/0/0", "value": 6}])",
     "layers 6 to 10 stand where layer 5 must follow", "plan.json: stages[1].chunks[0]"},
    {"a layer twice", R"([{"op": "replace", "path": "/stages/1/chunks/0/0", "value": 4}])",
     "layers 4 to 10 stand where layer 5 must follow", "plan.json: stages[1].chunks[0]"},
    {"an empty range", R"([{"op": "replace", "path": "/stages/0/chunks/0/1", "value": 0}])",
     "layers 0 to 0", "plan.json: stages[0].chunks[0]"},
    {"no head", R"([{"op": "replace", "path": "/stages/1/chunks/0/1", "value": 9}])",
     "the stages end at layer 9 of 10", "plan.json: stages[1].chunks[0]"},
    {"a layer beyond the head",
     R"([{"op": "replace", "path": "/stages/1/chunks/0/1", "value": 11}])",
     "the stages end at layer 11 of 10", "plan.json: stages[1].chunks[0]"},
    {"a stage without a block",
     R"([{"op": "replace", "path": "/stages/0/chunks/0/1", "value": 1},
         {"op": "replace", "path": "/stages/1/chunks/0/0", "value": 1}])",
     "stage 0 has no block", "plan.json: stages[0].chunks"},
    {"a layer without a strategy",
     R"([{"op": "replace", "path": "/stages/0/strategies/1/layers", "value": 3}])",
     "4 strategies for 5 layers", "plan.json: stages[0].strategies"},
};

constexpr MistakeCase kStrategyMistakes[] = {
    {"too many devices", R"([{"op": "replace", "path": "/stages/0/strategies/1/dp", "value": 4}])",
     "layer 1 ('block'): tp=2 cp=1 dp=4 do not fill the 4 devices",
     "plan.json: stages[0].strategies[1]"},
    {"degrees whose product overflows",
     R"([{"op": "replace", "path": "/stages/0/strategies/1/tp", "value": 1048576},
         {"op": "replace", "path": "/stages/0/strategies/1/cp", "value": 1048576},
         {"op": "replace", "path": "/stages/0/strategies/1/dp", "value": 1048576}])",
     "do not fill", "plan.json: stages[0].strategies[1]"},
    {"tp of three",
     R"([{"op": "replace", "path": "/cluster/nodes/0/devices", "value": 6},
         {"op": "replace", "path": "/stages/0/strategies/0/tp", "value": 3},
         {"op": "replace", "path": "/stages/0/strategies/0/dp", "value": 1}])",
     "tp=3 is not a power of two", "plan.json: stages[0].strategies[0].tp"},
    {"cp of three",
     R"([{"op": "replace", "path": "/cluster/nodes/0/devices", "value": 6},
         {"op": "replace", "path": "/stages/0/strategies/0/cp", "value": 3},
         {"op": "replace", "path": "/stages/0/strategies/0/dp", "value": 1}])",
     "cp=3 is not a power of two", "plan.json: stages[0].strategies[0].cp"},
    {"more replicas than samples", R"([{"op": "replace", "path": "/micro_batches", "value": 16}])",
     "layer 0 ('embedding'): dp=4 does not divide the 2 samples",
     "plan.json: stages[0].strategies[0].dp"},
    {"heads that tp does not divide",
     R"([{"op": "replace", "path": "/model/types/1/heads", "value": 3},
         {"op": "replace", "path": "/model/types/1/kv_heads", "value": 3}])",
     "tp=2 does not divide the 3 attention heads", "plan.json: stages[0].strategies[1].tp"},
    {"key-value heads that tp does not fit",
     R"([{"op": "replace", "path": "/model/types/1/heads", "value": 6},
         {"op": "replace", "path": "/model/types/1/kv_heads", "value": 3}])",
     "tp=2 (megatron) does not fit the 3 key-value heads", "plan.json: stages[0].strategies[1].tp"},
    {"Ulysses over fewer key-value heads than ranks",
     R"([{"op": "replace", "path": "/model/types/1/kv_heads", "value": 1},
         {"op": "replace", "path": "/stages/1/strategies/0/tp_kind", "value": "ulysses"}])",
     "layer 5 ('block'): tp=2 (ulysses) does not fit the 1 key-value heads",
     "plan.json: stages[1].strategies[0].tp"},
    {"a feed-forward that tp does not divide",
     R"([{"op": "replace", "path": "/model/types/1/ffn", "value": 127}])",
     "tp=2 does not divide the layer's width of 127", "plan.json: stages[0].strategies[1].tp"},
    {"tokens that tp does not divide",
     R"([{"op": "replace", "path": "/model/types/0/tokens", "value": 15},
         {"op": "replace", "path": "/model/types/1/tokens", "value": 15},
         {"op": "replace", "path": "/model/types/2/tokens", "value": 15},
         {"op": "replace", "path": "/model/sequence", "value": 15}])",
     "tp·cp=2 does not divide 15 tokens", "plan.json: stages[0].strategies[1].tp"},
    {"a causal ring whose blocks do not come in pairs",
     R"([{"op": "replace", "path": "/model/types/0/tokens", "value": 6},
         {"op": "replace", "path": "/model/types/1/tokens", "value": 6},
         {"op": "replace", "path": "/model/types/2/tokens", "value": 6},
         {"op": "replace", "path": "/model/sequence", "value": 6},
         {"op": "replace", "path": "/stages/0/strategies/1/tp", "value": 1},
         {"op": "replace", "path": "/stages/0/strategies/1/cp", "value": 2}])",
     "a causal ring of cp=2 needs 4 equal blocks of 6 tokens",
     "plan.json: stages[0].strategies[1].cp"},
    {"a square of three",
     R"([{"op": "replace", "path": "/stages/0/strategies/1/tp", "value": 4},
         {"op": "replace", "path": "/stages/0/strategies/1/dp", "value": 1},
         {"op": "replace", "path": "/stages/0/strategies/1/tp_kind", "value": "spatial_temporal"},
         {"op": "add", "path": "/stages/0/strategies/1/square", "value": 3}])",
     "a square of side 3", "plan.json: stages[0].strategies[1].square"},
    {"a square of too many heads",
     R"([{"op": "replace", "path": "/stages/0/strategies/1/tp", "value": 4},
         {"op": "replace", "path": "/stages/0/strategies/1/dp", "value": 1},
         {"op": "replace", "path": "/model/types/1/kv_heads", "value": 1},
         {"op": "replace", "path": "/stages/0/strategies/1/tp_kind", "value": "spatial_temporal"},
         {"op": "add", "path": "/stages/0/strategies/1/square", "value": 2}])",
     "a square of 2×2 under tp=4 needs the 8 attention heads and 1 key-value heads in 2 equal "
     "parts",
     "plan.json: stages[0].strategies[1].square"},
    {"ep without experts",
     R"([{"op": "replace", "path": "/stages/0/strategies/1/ep", "value": 2}])",
     "ep=2 on a layer without experts", "plan.json: stages[0].strategies[1].ep"},
    {"ep that does not divide the experts",
     R"([{"op": "add", "path": "/model/types/1/experts", "value": 3},
         {"op": "add", "path": "/model/types/1/experts_per_token", "value": 1},
         {"op": "replace", "path": "/stages/0/strategies/1/ep", "value": 2}])",
     "ep=2 does not divide the 3 experts", "plan.json: stages[0].strategies[1].ep"},
    {"ep that does not divide dp",
     R"([{"op": "add", "path": "/model/types/1/experts", "value": 4},
         {"op": "add", "path": "/model/types/1/experts_per_token", "value": 1},
         {"op": "replace", "path": "/stages/0/strategies/1/ep", "value": 4}])",
     "ep=4 does not divide dp=2", "plan.json: stages[0].strategies[1].ep"},
    {"ZeRO over one replica",
     R"([{"op": "replace", "path": "/stages/0/strategies/1/tp", "value": 4},
         {"op": "replace", "path": "/stages/0/strategies/1/dp", "value": 1}])",
     "zero=2 where nothing is replicated", "plan.json: stages[0].strategies[1].zero"},
    {"an embedding that is recomputed",
     R"([{"op": "replace", "path": "/stages/0/strategies/0/recompute", "value": "full"}])",
     "full recomputation on a layer of kind 'embedding'",
     "plan.json: stages[0].strategies[0].recompute"},
    {"a head that is recomputed",
     R"([{"op": "replace", "path": "/stages/1/strategies/1/recompute", "value": "selective"}])",
     "layer 9 ('head'): selective recomputation", "plan.json: stages[1].strategies[1].recompute"},
};

void expect_refused(std::span<const MistakeCase> cases) {
  expect_refused(cases, to_json(two_stage_plan()),
                 [](const Json& json) { plan_from_json(json, "plan.json"); });
}

TEST(PlanVerify, RefusesBadFiles) { expect_refused(kFileMistakes); }
TEST(PlanVerify, RefusesBadPipelines) { expect_refused(kPipelineMistakes); }
TEST(PlanVerify, RefusesBadStrategies) { expect_refused(kStrategyMistakes); }

TEST(PlanVerify, AcceptsWhatWasNotBroken) {
  EXPECT_NO_THROW(verify(two_stage_plan(), "plan.json"));
}

// A search can hand over what no file can say.
TEST(PlanVerify, RefusesAStageCountThatIsNotTheStages) {
  Plan plan = two_stage_plan();
  plan.shape.stages = 4;
  EXPECT_THROW(verify(plan, "search"), Error);
}

TEST(PlanVerify, RefusesDegreesBelowOne) {
  for (int Strategy::*degree : {&Strategy::tp, &Strategy::cp, &Strategy::dp, &Strategy::ep}) {
    Plan plan = two_stage_plan();
    plan.stages[0].strategies[2].*degree = 0;
    EXPECT_THROW(verify(plan, "search"), Error);
  }
}

// One strategy may be legal for a block and not for the head that shares its run.
TEST(PlanVerify, ChecksEveryLayerOfARun) {
  Plan plan = two_stage_plan();
  plan.stages[1].strategies[4] = plan.stages[1].strategies[3];
  try {
    verify(plan, "search");
    ADD_FAILURE() << "a recomputed head went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.mistake().where, "search: stages[1].strategies[0].recompute");
  }
}

TEST(PlanLayers, FollowTheChunks) {
  const StagePlan stage{.chunks = {{0, 2}, {5, 8}}, .strategies = {}};
  EXPECT_EQ(layers_of(stage), (std::vector<int>{0, 1, 5, 6, 7}));
}

}  // namespace
}  // namespace braid
