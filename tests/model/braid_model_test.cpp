// Braid's own model file: what it says, that it survives a round trip, and what it refuses.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/model/fields.h"
#include "planner/model/model.h"
#include "tests/support/mistakes.h"

namespace braid {
namespace {

constexpr const char* kTiny = R"({
  "format": "braid.model",
  "version": 1,
  "name": "tiny",
  "sequence": 16,
  "types": [
    {
      "name": "embedding",
      "kind": "embedding",
      "norm": "rms_norm",
      "tokens": 16,
      "hidden": 8,
      "vocab": 10
    },
    {
      "name": "decoder",
      "kind": "block",
      "attention": "causal",
      "activation": "swiglu",
      "norm": "rms_norm",
      "tokens": 16,
      "hidden": 8,
      "heads": 4,
      "kv_heads": 2,
      "head_dim": 2,
      "ffn": 16,
      "rotary": true
    },
    {
      "name": "head",
      "kind": "head",
      "norm": "rms_norm",
      "tokens": 16,
      "hidden": 8,
      "vocab": 10,
      "final_norm": true
    }
  ],
  "layers": [
    {
      "type": "embedding",
      "count": 1
    },
    {
      "type": "decoder",
      "count": 3
    },
    {
      "type": "head",
      "count": 1
    }
  ]
})";

std::filesystem::path source_dir() { return BRAID_SOURCE_DIR; }

TEST(BraidModel, ReadsShapesAndRuns) {
  const Model model = model_from_json(parse_json(kTiny, "tiny.json"), "tiny.json");
  EXPECT_EQ(model.name, "tiny");
  EXPECT_EQ(model.family, "braid");
  EXPECT_EQ(model.layers, (std::vector<int>{0, 1, 1, 1, 2}));
  EXPECT_EQ(parameters(model), 80 + 3 * 592 + 88);
}

TEST(BraidModel, RoundTripsByteForByte) {
  const Model model = model_from_json(parse_json(kTiny, "tiny.json"), "tiny.json");
  EXPECT_EQ(to_json(model).dump(2), kTiny);
}

// Numbers whose shortest decimal form is long, or has another type than a double's.
TEST(BraidModel, KeepsNumbersToTheLastBit) {
  Model model = model_from_json(parse_json(kTiny, "tiny.json"), "tiny.json");
  LayerShape& block = model.types[1].shape;
  block.norm_epsilon = 1.0 / 3;
  block.rotary_base = 500'000;
  block.init_std = std::numeric_limits<double>::min();
  block.residual_init_scale = 1 / std::sqrt(24.0);
  block.rotary_scaling = {.factor = 0.1 + 0.2, .high_frequency = 1e9, .original_positions = 8192};
  block.activation = Activation::geglu_tanh;
  const std::string written = to_json(model).dump(2);
  const Model again = model_from_json(parse_json(written, "again"), "again");
  EXPECT_EQ(again.types[1].shape, block);
}

TEST(BraidModel, LeavesOutOfTheScalingWhatIsUsual) {
  Json json = parse_json(kTiny, "tiny.json");
  json["types"][1]["rotary_scaling"] = {{"factor", 2.0}};
  const Model model = model_from_json(json, "tiny.json");
  EXPECT_EQ(model.types[1].shape.rotary_scaling, RotaryScaling{.factor = 2});
  EXPECT_EQ(to_json(model), json);
}

TEST(BraidModel, HoldsEveryShippedModel) {
  for (const auto& entry :
       std::filesystem::directory_iterator(source_dir() / "configs" / "models")) {
    const Model model = read_model(entry.path());
    const std::string written = to_json(model).dump(2);
    const Model again = model_from_json(parse_json(written, "again"), "again");
    EXPECT_EQ(to_json(again).dump(2), written) << model.name;
    EXPECT_EQ(again.layers, model.layers) << model.name;
    EXPECT_EQ(again.family, model.family) << model.name;
    for (std::size_t i = 0; i < model.types.size(); ++i)
      EXPECT_EQ(again.types[i].shape, model.types[i].shape) << model.name;
  }
}

// Members of an aggregate, counted by how many initializers it takes.
struct Anything {
  template <class T>
  operator T() const;
};

template <class Aggregate, class... Members>
consteval std::size_t num_members() {
  if constexpr (requires { Aggregate{Members{}..., Anything{}}; })
    return num_members<Aggregate, Members..., Anything>();
  else
    return sizeof...(Members);
}

// A field that the file format forgot would be lost in a round trip.
TEST(BraidModel, KnowsEveryFieldOfAShape) {
  constexpr std::size_t kEnumerations = 4;  // kind, attention, activation, norm
  constexpr std::size_t kStructs = 1;       // rotary_scaling
  constexpr std::size_t kIds = 1;           // padding_id
  EXPECT_EQ(kSizeFields.size() + kFlagFields.size() + kNumberFields.size() + kEnumerations +
                kStructs + kIds,
            num_members<LayerShape>());
  constexpr std::size_t kSizes = 1;  // original_positions
  EXPECT_EQ(kScalingFields.size() + kSizes, num_members<RotaryScaling>());
}

TEST(BraidModel, TakesAnotherSequence) {
  const Model model = model_from_json(parse_json(kTiny, "tiny.json"), "tiny.json", 32);
  EXPECT_EQ(model.sequence, 32);
  for (int i = 0; i < model.num_layers(); ++i) EXPECT_EQ(model.type_of(i).shape.tokens, 32);
}

std::set<std::string> keys(const Json& object) {
  std::set<std::string> all;
  for (const auto& [key, value] : object.items()) all.insert(key);
  return all;
}

TEST(BraidModel, SchemaNamesTheSameFields) {
  const Json schema = read_json(source_dir() / "schemas" / "model.schema.json");
  const Json& properties = schema["$defs"]["type"]["properties"];
  std::set<std::string> known = {"name", "kind",           "attention", "activation",
                                 "norm", "rotary_scaling", "padding_id"};
  for (const SizeField& field : kSizeFields) {
    known.insert(field.name);
    EXPECT_EQ(properties[field.name]["maximum"], field.limit.high) << field.name;
  }
  for (const FlagField& field : kFlagFields) known.insert(field.name);
  for (const auto& field : kNumberFields) {
    known.insert(field.name);
    EXPECT_EQ(properties[field.name]["default"], LayerShape().*field.member) << field.name;
    EXPECT_EQ(properties[field.name]["maximum"], field.limit.high) << field.name;
  }
  EXPECT_EQ(keys(properties), known);

  const Json& scaling = schema["$defs"]["rotary_scaling"]["properties"];
  std::set<std::string> known_of_scaling = {"original_positions"};
  for (const auto& field : kScalingFields) {
    known_of_scaling.insert(field.name);
    EXPECT_EQ(scaling[field.name]["default"], RotaryScaling().*field.member) << field.name;
  }
  EXPECT_EQ(keys(scaling), known_of_scaling);
}

constexpr MistakeCase kMistakes[] = {
    {"another format", R"([{"op": "replace", "path": "/format", "value": "braid.plan"}])",
     "'braid.plan'", "tiny.json"},
    {"another version", R"([{"op": "replace", "path": "/version", "value": 2}])", "version 2",
     "tiny.json"},
    {"a misspelt key", R"([{"op": "add", "path": "/types/1/head", "value": 4}])",
     "unknown key 'head'; did you mean 'heads'", "tiny.json: types[1]"},
    {"an unknown kind", R"([{"op": "replace", "path": "/types/1/kind", "value": "blok"}])",
     "did you mean 'block'", "tiny.json: types[1].kind"},
    {"an unknown type", R"([{"op": "replace", "path": "/layers/1/type", "value": "decode"}])",
     "did you mean 'decoder'", "tiny.json: layers[1].type"},
    {"a count of none", R"([{"op": "replace", "path": "/layers/1/count", "value": 0}])",
     "0 is out of range", "tiny.json: layers[1].count"},
    {"too many layers", R"([{"op": "replace", "path": "/layers/1/count", "value": 10000}])",
     "too many layers", "tiny.json: layers[1]"},
    {"no block", R"([{"op": "remove", "path": "/layers/1"}])", "a model of 2 layers",
     "tiny.json: layers"},
    {"the head first",
     R"([{"op": "replace", "path": "/layers/0/type", "value": "head"},
         {"op": "replace", "path": "/layers/2/type", "value": "embedding"}])",
     "layer 0 of 5 is of kind 'head'", "tiny.json: layers[0]"},
    {"two types of one name",
     R"([{"op": "replace", "path": "/types/2/name", "value": "decoder"},
         {"op": "replace", "path": "/layers/2/type", "value": "decoder"}])",
     "two layer types are called 'decoder'", "tiny.json: types[2]"},
    {"a type that no layer uses",
     R"([{"op": "add", "path": "/types/-",
          "value": {"name": "spare", "kind": "block", "tokens": 16, "hidden": 8, "ffn": 8}}])",
     "no layer is of type 'spare'", "tiny.json: types[3]"},
    {"widths that do not meet", R"([{"op": "replace", "path": "/types/2/hidden", "value": 9}])",
     "'decoder' hands on 16 tokens of width 8, 'head' takes 16 of width 9", "tiny.json: layers[4]"},
    {"lengths that do not meet", R"([{"op": "replace", "path": "/types/2/tokens", "value": 9}])",
     "'head' takes 9", "tiny.json: layers[4]"},
    {"a sequence that is not the embedding's",
     R"([{"op": "replace", "path": "/sequence", "value": 8}])", "the sequence is 8",
     "tiny.json: sequence"},
    {"kv heads that do not divide",
     R"([{"op": "replace", "path": "/types/1/kv_heads", "value": 3}])",
     "3 key-value heads do not divide 4", "tiny.json: types[1].kv_heads"},
    {"attention without heads", R"([{"op": "remove", "path": "/types/1/heads"}])", "heads is 0",
     "tiny.json: types[1].heads"},
    {"heads without attention", R"([{"op": "remove", "path": "/types/1/attention"}])",
     "without attention has heads", "tiny.json: types[1].attention"},
    {"a window of nothing",
     R"([{"op": "replace", "path": "/types/1/attention", "value": "window"}])",
     "window attention has no window", "tiny.json: types[1].window"},
    {"more experts a token than experts",
     R"([{"op": "add", "path": "/types/1/experts", "value": 2},
         {"op": "add", "path": "/types/1/experts_per_token", "value": 3}])",
     "3 experts a token of 2", "tiny.json: types[1].experts_per_token"},
    {"an embedding of nothing", R"([{"op": "remove", "path": "/types/0/vocab"}])",
     "either ids or patches", "tiny.json: types[0].vocab"},
    {"more tokens than positions", R"([{"op": "add", "path": "/types/0/positions", "value": 8}])",
     "16 tokens are more than the 8", "tiny.json: types[0].tokens"},
    {"a tied head of another vocabulary",
     R"([{"op": "add", "path": "/types/2/tied", "value": true},
         {"op": "replace", "path": "/types/2/vocab", "value": 11}])",
     "a tied head has another shape", "tiny.json: layers"},
    {"an epsilon of zero", R"([{"op": "add", "path": "/types/1/norm_epsilon", "value": 0}])",
     "0 is out of range", "tiny.json: types[1].norm_epsilon"},
    {"a negative deviation", R"([{"op": "add", "path": "/types/0/init_std", "value": -0.02}])",
     "-0.02 is out of range", "tiny.json: types[0].init_std"},
    {"a rotary base in quotes",
     R"([{"op": "add", "path": "/types/1/rotary_base", "value": "10000"}])", "expected a number",
     "tiny.json: types[1].rotary_base"},
    {"a scaling by zero",
     R"([{"op": "add", "path": "/types/1/rotary_scaling", "value": {"factor": 0}}])",
     "0 is out of range", "tiny.json: types[1].rotary_scaling.factor"},
    {"a misspelt key of the scaling",
     R"([{"op": "add", "path": "/types/1/rotary_scaling", "value": {"facto": 2}}])",
     "did you mean 'factor'", "tiny.json: types[1].rotary_scaling"},
    {"a scaling without room between its frequencies",
     R"([{"op": "add", "path": "/types/1/rotary_scaling",
          "value": {"low_frequency": 4, "original_positions": 8}}])",
     "the high frequency 4 does not exceed the low one, 4",
     "tiny.json: types[1].rotary_scaling.high_frequency"},
    {"a scaling from a negative length",
     R"([{"op": "add", "path": "/types/1/rotary_scaling", "value": {"original_positions": -1}}])",
     "-1 is out of range", "tiny.json: types[1].rotary_scaling.original_positions"},
    {"more parameters than can be counted",
     R"([{"op": "replace", "path": "/types/0/hidden", "value": 1048576},
         {"op": "replace", "path": "/types/1/hidden", "value": 1048576},
         {"op": "replace", "path": "/types/2/hidden", "value": 1048576},
         {"op": "replace", "path": "/types/1/ffn", "value": 1048576},
         {"op": "add", "path": "/types/1/experts", "value": 4096},
         {"op": "add", "path": "/types/1/experts_per_token", "value": 1},
         {"op": "replace", "path": "/layers/1/count", "value": 9000}])",
     "parameters", "tiny.json: layers"},
};

TEST(BraidModel, RefusesMistakes) {
  expect_refused(kMistakes, parse_json(kTiny, "tiny.json"),
                 [](const Json& json) { model_from_json(json, "tiny.json"); });
}

}  // namespace
}  // namespace braid
