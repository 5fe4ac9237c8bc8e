// Profile files: that they survive a round trip, and what they refuse.

#include "planner/profile/profile.h"

#include <gtest/gtest.h>

#include <set>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "tests/support/mistakes.h"

namespace braid {
namespace {

constexpr const char* kProfile = R"({
  "format": "braid.profile",
  "version": 3,
  "name": "measured",
  "source": "by hand",
  "taken_on": {
    "ranks": "8",
    "cpu": "Xeon"
  },
  "noise": {
    "measurements": 12,
    "typical": 0.01,
    "worst": 0.25,
    "worst_name": "all_reduce 8x1 1024"
  },
  "precision": "bf16",
  "gradient_precision": "fp32",
  "overlap_slowdown": 1.125552573612729,
  "rest_gain": 0.25,
  "context_bytes": 536870912,
  "allocator_slack": 0.02,
  "correction": {
    "compute": 1.1,
    "tensor": 1.0,
    "context": 1.0,
    "sharding": 0.9,
    "transfer": 1.0,
    "update": 1.0,
    "step_overhead": 0.001
  },
  "overlaps": [
    {
      "op": "all_gather",
      "ranks": 8,
      "compute": 1.2,
      "communication": 1000.0
    }
  ],
  "meetings": [
    {
      "ranks": 4,
      "apart": 0.002,
      "wait": 0.125
    }
  ],
  "updates": [
    {
      "elements": 1048576,
      "seconds": 0.0001
    }
  ],
  "gemms": [
    {
      "precision": "bf16",
      "m": 4096,
      "n": 4096,
      "k": 128,
      "flops_per_second": 75000000000000.0
    }
  ],
  "layers": [
    {
      "type": "decoder",
      "parameter_bytes": 809500672.0,
      "saved": {
        "1": 1000.5,
        "2": 600.0,
        "16": 90.0
      },
      "saved_full": 30.25,
      "compute": [
        {
          "samples": 0.5,
          "sequence": 2048,
          "split": 2,
          "kind": "ulysses",
          "context": 2,
          "forward": 0.0123,
          "backward_input": 0.02,
          "backward_weight": 0.01,
          "selective": 0.003,
          "full": 0.012,
          "workspace_bytes": 4096,
          "workspace_selective_bytes": 8192,
          "workspace_full_bytes": 16384
        },
        {
          "samples": 1.0,
          "sequence": 2048,
          "split": 1,
          "forward": 0.03
        }
      ]
    },
    {
      "type": "outside",
      "compute": []
    }
  ],
  "only_stage": {
    "states": {
      "1": 100.0
    },
    "activations": {
      "1": 5.0,
      "2": 3.0
    }
  },
  "last_stage": {
    "states": {
      "1": 50.0
    },
    "activations": {
      "1": 2.0
    }
  },
  "bandwidths": [
    {
      "op": "all_reduce",
      "ranks": 8,
      "stride": 1,
      "bytes_per_second": 165691000000.0
    }
  ],
  "collectives": [
    {
      "op": "all_to_all",
      "ranks": 4,
      "stride": 2,
      "bytes": 1048576,
      "seconds": 7.895e-05
    }
  ]
})";

Profile sample() { return profile_from_json(parse_json(kProfile, "p.json"), "p.json"); }

TEST(Profile, ReadsWhatWasMeasured) {
  const Profile profile = sample();
  const MeasuredLayer* decoder = profile.layer("decoder");
  ASSERT_NE(decoder, nullptr);
  EXPECT_EQ(decoder->saved, (BySplit{{1, 1000.5}, {2, 600.0}, {16, 90.0}}));
  EXPECT_EQ(decoder->saved_full, 30.25);
  ASSERT_EQ(decoder->compute.size(), 2U);
  EXPECT_EQ(decoder->compute[0].backward_weight, Seconds(0.01));
  EXPECT_FALSE(decoder->compute[1].backward_input.has_value());
  EXPECT_EQ(profile.layer("encoder"), nullptr);
  EXPECT_EQ(profile.context, Bytes(536'870'912));
  EXPECT_FALSE(profile.first_stage.has_value());
  EXPECT_EQ(profile.last_stage.value_or(MeasuredOutside{}).states, (BySplit{{1, 50.0}}));
  EXPECT_EQ(profile.bandwidths.front().bandwidth, BytesPerSecond(165.691e9));
  EXPECT_EQ(profile.collectives.front().op, Collective::all_to_all);
  EXPECT_EQ(profile.collectives.front().seconds, Seconds(78.95e-6));
  EXPECT_EQ(profile.taken_on, (std::vector<Fact>{{"ranks", "8"}, {"cpu", "Xeon"}}));
  EXPECT_EQ(profile.overlaps.front().communication, kNoProgress);
  EXPECT_EQ(profile.gemms.front().rate, FlopsPerSecond(75e12));
  EXPECT_EQ(profile.noise.value_or(Noise{}).worst_name, "all_reduce 8x1 1024");
  EXPECT_EQ(profile.correction.value_or(Correction{}).sharding, 0.9);
}

TEST(Profile, RoundTripsByteForByte) { EXPECT_EQ(to_json(sample()).dump(2), kProfile); }

TEST(Profile, CarriesModelAndCluster) {
  const std::filesystem::path configs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
  const Model model = read_model(configs / "models" / "llama2-7b.json");
  Profile profile = sample();
  profile.model = model;
  profile.cluster = read_cluster(configs / "clusters" / "a100-80g-8.json");
  const std::string text = to_json(profile).dump(2);
  const Profile again = profile_from_json(parse_json(text, "p.json"), "p.json");
  EXPECT_EQ(to_json(again).dump(2), text);
  EXPECT_EQ(again.model.value_or(Model{}).layers, model.layers);
  EXPECT_EQ(again.cluster.value_or(Cluster{}).num_devices(), 8);
}

TEST(Profile, NamesEveryCollective) {
  EXPECT_EQ(name_of(Collective::all_reduce), "all_reduce");
  EXPECT_EQ(name_of(Collective::all_gather), "all_gather");
  EXPECT_EQ(name_of(Collective::reduce_scatter), "reduce_scatter");
  EXPECT_EQ(name_of(Collective::all_to_all), "all_to_all");
  EXPECT_EQ(name_of(Collective::point_to_point), "point_to_point");
}

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, unused] : object.items()) keys.insert(key);
  return keys;
}

TEST(Profile, SchemaNamesTheSameFields) {
  const std::filesystem::path root = BRAID_SOURCE_DIR;
  const Json schema = read_json(root / "schemas" / "profile.schema.json");
  const Json& defs = schema["$defs"];
  Profile profile = sample();
  profile.model = read_model(root / "configs" / "models" / "gpt2.json");
  profile.cluster = read_cluster(root / "configs" / "clusters" / "a100-80g-8.json");
  profile.first_stage = profile.last_stage;
  const Json json = to_json(profile);
  EXPECT_EQ(keys_of(schema["properties"]), keys_of(json));
  EXPECT_EQ(keys_of(defs["layer"]["properties"]), keys_of(json["layers"][0]));
  EXPECT_EQ(keys_of(defs["compute"]["properties"]), keys_of(json["layers"][0]["compute"][0]));
  EXPECT_EQ(keys_of(defs["outside"]["properties"]), keys_of(json["only_stage"]));
  EXPECT_EQ(keys_of(defs["bandwidth"]["properties"]), keys_of(json["bandwidths"][0]));
  EXPECT_EQ(keys_of(defs["collective"]["properties"]), keys_of(json["collectives"][0]));
}

constexpr MistakeCase kMistakes[] = {
    {"another format", R"([{"op": "replace", "path": "/format", "value": "braid.plan"}])",
     "'braid.plan'", "p.json"},
    {"another version", R"([{"op": "replace", "path": "/version", "value": 1}])", "version 1",
     "p.json"},
    {"an unknown key", R"([{"op": "add", "path": "/bandwidth", "value": []}])",
     "did you mean 'bandwidths'", "p.json"},
    {"an unknown collective",
     R"([{"op": "replace", "path": "/bandwidths/0/op", "value": "allreduce"}])",
     "did you mean 'all_reduce'", "p.json: bandwidths[0].op"},
    {"a collective that takes no time",
     R"([{"op": "replace", "path": "/collectives/0/seconds", "value": 0}])", "no time",
     "p.json: collectives[0].seconds"},
    {"a forward pass that takes no time",
     R"([{"op": "replace", "path": "/layers/0/compute/1/forward", "value": 0}])", "no time",
     "p.json: layers[0].compute[1].forward"},
    {"meetings without work between them",
     R"([{"op": "replace", "path": "/meetings/0/apart", "value": 0}])", "no time",
     "p.json: meetings[0].apart"},
    {"an update that takes no time",
     R"([{"op": "replace", "path": "/updates/0/seconds", "value": 0}])", "no time",
     "p.json: updates[0].seconds"},
    {"an update of nothing", R"([{"op": "replace", "path": "/updates/0/elements", "value": 0}])",
     "0 is out of range", "p.json: updates[0].elements"},
    {"a block that takes no time", R"([{"op": "add", "path": "/overlaps/0/block", "value": 0}])",
     "no time", "p.json: overlaps[0].block"},
    {"no samples", R"([{"op": "replace", "path": "/layers/0/compute/0/samples", "value": 0}])",
     "0 is out of range", "p.json: layers[0].compute[0].samples"},
    {"states of no split", R"([{"op": "replace", "path": "/only_stage/states", "value": {}}])",
     "no split was measured", "p.json: only_stage.states"},
    {"activations of no split",
     R"([{"op": "replace", "path": "/last_stage/activations", "value": {}}])",
     "no split was measured", "p.json: last_stage.activations"},
    {"activations kept of no split",
     R"([{"op": "replace", "path": "/layers/0/saved", "value": {}}])", "no split was measured",
     "p.json: layers[0].saved"},
    {"a bandwidth of nothing",
     R"([{"op": "replace", "path": "/bandwidths/0/bytes_per_second", "value": 0}])",
     "0 is out of range", "p.json: bandwidths[0].bytes_per_second"},
    {"a negative time",
     R"([{"op": "replace", "path": "/layers/0/compute/1/forward", "value": -1}])",
     "-1 is out of range", "p.json: layers[0].compute[1].forward"},
    {"no ranks", R"([{"op": "replace", "path": "/collectives/0/ranks", "value": 0}])",
     "0 is out of range", "p.json: collectives[0].ranks"},
    {"a split that is no number", R"([{"op": "add", "path": "/layers/0/saved/two", "value": 1}])",
     "'two' is not a number of ways", "p.json: layers[0].saved.two"},
    {"a split in no ways", R"([{"op": "add", "path": "/layers/0/saved/0", "value": 1}])",
     "at least one way", "p.json: layers[0].saved.0"},
    {"a split beyond integers",
     R"([{"op": "add", "path": "/layers/0/saved/99999999999", "value": 1}])",
     "is not a number of ways", "p.json: layers[0].saved.99999999999"},
    {"a layer type twice", R"([{"op": "replace", "path": "/layers/1/type", "value": "decoder"}])",
     "'decoder' stands twice", "p.json: layers[1]"},
    {"overlap that speeds up", R"([{"op": "replace", "path": "/overlap_slowdown", "value": 0.9}])",
     "0.9 is out of range", "p.json: overlap_slowdown"},
    {"an operation that compute speeds up",
     R"([{"op": "replace", "path": "/overlaps/0/communication", "value": 0.5}])",
     "0.5 is out of range", "p.json: overlaps[0].communication"},
    {"a product without a rate",
     R"([{"op": "replace", "path": "/gemms/0/flops_per_second", "value": 0}])", "0 is out of range",
     "p.json: gemms[0].flops_per_second"},
    {"a fact that is no text", R"([{"op": "replace", "path": "/taken_on/ranks", "value": 8}])",
     "expected a string", "p.json: taken_on.ranks"},
    {"half a placement", R"([{"op": "remove", "path": "/only_stage/activations"}])",
     "'activations' is missing", "p.json: only_stage"},
};

TEST(Profile, SaysWhichFactsDiffer) {
  const std::vector<Fact> then = {{"ranks", "8"}, {"cpu", "Xeon"}, {"driver", "580"}};
  const std::vector<Fact> now = {{"cpu", "Xeon"}, {"ranks", "4"}, {"gpu", "H200"}};
  EXPECT_EQ(differences(then, now),
            (std::vector<std::string>{"ranks: '8' then, '4' now", "driver: '580' then, unknown now",
                                      "gpu: unknown then, 'H200' now"}));
  EXPECT_TRUE(differences(then, then).empty());
}

TEST(Profile, ACutFileIsRefusedWhereverItEnds) {
  const std::string whole = kProfile;
  for (std::size_t end = 0; end < whole.size(); end += 7)
    EXPECT_THROW(profile_from_json(parse_json(whole.substr(0, end), "p.json"), "p.json"), Error)
        << end;
}

TEST(Profile, RefusesMistakes) {
  expect_refused(kMistakes, parse_json(kProfile, "p.json"),
                 [](const Json& json) { profile_from_json(json, "p.json"); });
}

TEST(Profile, HasALimitForEveryNumber) {
  const Json sound = parse_json(kProfile, "profile.json");
  const Json flat = sound.flatten();
  for (const auto& [key, value] : flat.items()) {
    if (!value.is_number()) continue;
    for (const Json& large : {Json(1e300), Json(-1e300)}) {
      Json edited = sound;
      edited[Json::json_pointer(key)] = large;
      EXPECT_THROW(profile_from_json(edited, "profile.json"), Error) << key << " " << large;
    }
  }
}

}  // namespace
}  // namespace braid
