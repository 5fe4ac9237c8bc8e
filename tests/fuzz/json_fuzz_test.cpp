// Whatever a file holds, its reader returns or throws braid::Error: nothing crashes, hangs or
// throws anything else, and what was read can be written, read again and reckoned with.
// BRAID_FUZZ_INPUTS raises the number of inputs.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/cost/make_cost_model.h"
#include "planner/plan/plan.h"
#include "planner/profile/profile.h"
#include "planner/search/search.h"
#include "planner/simulate/price_plan.h"
#include "tests/fuzz/mutate.h"

namespace braid {
namespace {

constexpr int kInputs = 100'000;  // of all kinds together
constexpr double kLongest = 5;    // seconds for one input

const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";

int inputs() {
  const char* wanted = std::getenv("BRAID_FUZZ_INPUTS");
  return wanted != nullptr ? std::max(kInputs, std::atoi(wanted)) : kInputs;
}

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> texts;
  texts.reserve(paths.size());
  for (const auto& path : paths) texts.push_back(read_text(path));
  return texts;
}

std::vector<std::string> models() {
  std::vector<std::string> texts = files_in(kConfigs / "models");
  for (const char* name :
       {"llama2-7b", "t5-large-32", "swin-huge-32", "mixtral-8x7b", "bert-huge-32"})
    texts.push_back(
        to_json(read_model(kConfigs / "models" / (std::string(name) + ".json"))).dump(2));
  return texts;
}

std::vector<std::string> clusters() { return files_in(kConfigs / "clusters"); }

Plan small_plan(const char* model, const char* cluster, std::int64_t gib) {
  SearchOptions options;
  options.global_batch = 8;
  options.memory_limit = Bytes(gib << 30);
  const auto config = [](const char* folder, const char* name) {
    return kConfigs / folder / (std::string(name) + ".json");
  };
  return search(read_model(config("models", model)), read_cluster(config("clusters", cluster)),
                nullptr, options)
      .plan.value();
}

std::vector<std::string> plans() {
  return {plan_text(small_plan("gpt2", "a100-80g-8", 0)),
          plan_text(small_plan("gpt2-xl", "a100-80g-8", 6)),
          plan_text(small_plan("t5-large-32", "v100-32g-8", 8))};
}

std::vector<std::string> profiles() {
  Profile profile;
  profile.name = "small";
  profile.source = "a test";
  profile.overlap_slowdown = 1.125;
  profile.context = Bytes(1 << 29);
  profile.allocator_slack = 0.1;
  MeasuredLayer layer;
  layer.type = "decoder";
  layer.parameter_bytes = 8e8;
  layer.saved = {{1, 1e6}, {2, 6e5}};
  layer.saved_full = 1e5;
  ComputeSample sample;
  sample.sequence = 2048;
  sample.forward = Seconds(1e-3);
  layer.compute.push_back(sample);
  sample.split = sample.context = 2;
  sample.kind = TensorKind::ulysses;
  sample.backward_input = sample.backward_weight = sample.selective = sample.full = Seconds(2e-3);
  sample.workspace = sample.workspace_selective = sample.workspace_full = Bytes(1 << 20);
  layer.compute.push_back(sample);
  profile.layers = {layer};
  profile.only_stage = {{{1, 1e8}}, {{1, 1e7}}};
  profile.bandwidths = {{Collective::all_reduce, 8, 1, BytesPerSecond(1e11)}};
  profile.collectives = {{Collective::all_to_all, 4, 2, Bytes(1 << 20), Seconds(1e-4)}};
  profile.overlaps = {{Collective::all_gather, 8, 1.25, kNoProgress}};
  profile.meetings = {{4, Seconds(2e-3), 0.125}};
  profile.updates = {{1 << 20, Seconds(1e-3)}};
  profile.gemms = {{Precision::fp32, 64, 64, 64, FlopsPerSecond(1e12)}};
  profile.taken_on = {{"ranks", "8"}};
  profile.noise = Noise{3, 0.125, 0.5, "a"};
  profile.correction = Correction{};
  const std::string alone = to_json(profile).dump(2);
  profile.model = read_model(kConfigs / "models" / "gpt2.json");
  profile.cluster = read_cluster(kConfigs / "clusters" / "a100-v100-mixed.json");
  return {alone, to_json(profile).dump(2)};
}

// What was accepted and written is accepted again, and is the same.
template <class Rewrite>
void expect_survives(const std::string& written, Rewrite rewrite) {
  try {
    EXPECT_EQ(rewrite(parse_json(written, "again")), written);
  } catch (const Error& error) {
    ADD_FAILURE() << "refused what was written: " << error.what();
  }
}

template <class Action>
void may_refuse(Action action) {
  try {
    action();
  } catch (const Error&) {  // a model or cluster need not allow it
  }
}

void use_model(const Json& json) {
  const Model model = model_from_json(json, "fuzz");
  verify(model, "fuzz");
  EXPECT_GE(parameters(model), 0);
  EXPECT_GE(training_flops(model).value(), 0);
  for (const LayerType& type : model.types)
    for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full}) {
      EXPECT_GE(saved_bytes(type.shape, r, Precision::bf16), Bytes());
      EXPECT_GE(transient_bytes(type.shape, r, Precision::bf16), Bytes());
    }
  expect_survives(to_json(model).dump(), [](const Json& again) {
    return to_json(model_from_json(again, "again")).dump();
  });
  may_refuse([&] { static_cast<void>(with_sequence(model, 64)); });
}

void use_cluster(const Json& json) {
  const Cluster cluster = cluster_from_json(json, "fuzz");
  EXPECT_GE(cluster.num_devices(), cluster.node_width());
  expect_survives(to_json(cluster).dump(), [](const Json& again) {
    return to_json(cluster_from_json(again, "again")).dump();
  });
  may_refuse([&] { static_cast<void>(shrink(cluster, 4)); });
}

void use_profile(const Json& json) {
  expect_survives(to_json(profile_from_json(json, "fuzz")).dump(), [](const Json& again) {
    return to_json(profile_from_json(again, "again")).dump();
  });
}

void use_plan(const Json& json) {
  const Plan plan = plan_from_json(json, "fuzz");
  verify(plan, "fuzz");
  expect_survives(plan_text(plan),
                  [](const Json& again) { return plan_text(plan_from_json(again, "again")); });
}

struct Reader {
  const char* kind;
  std::function<std::vector<std::string>()> seeds;
  std::function<void(const Json&)> use;
  int share;  // of all inputs, in percent
};

const Reader kReaders[] = {
    {"model", models, use_model, 35},
    {"cluster", clusters, use_cluster, 25},
    {"profile", profiles, use_profile, 25},
    {"plan", plans, use_plan, 15},
};

class JsonFuzz : public testing::TestWithParam<Reader> {};

TEST_P(JsonFuzz, EveryInputIsReadOrRefusedAsTheUsersMistake) {
  const Reader& reader = GetParam();
  const std::vector<std::string> seeds = reader.seeds();
  for (const std::string& seed : seeds) reader.use(parse_json(seed, "seed"));
  const int count = (inputs() * reader.share + 99) / 100;
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < count && !HasFailure(); ++i) {
    Mutator mutate(static_cast<std::uint64_t>(i));
    const std::string text = mutate(seeds[static_cast<std::size_t>(mutate.below(seeds.size()))]);
    SCOPED_TRACE("input " + std::to_string(i) + ":\n" + text);
    const auto start = std::chrono::steady_clock::now();
    try {
      reader.use(parse_json(text, "fuzz"));
      ++accepted;
    } catch (const Error&) {
      ++refused;
    } catch (const std::exception& other) {
      ADD_FAILURE() << "not an Error: " << other.what();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), kLongest);
  }
  // Damage that is always or never noticed would test one half only.
  EXPECT_GT(accepted, count / 100);
  EXPECT_GT(refused, count / 4);
  RecordProperty("inputs", count);
  RecordProperty("accepted", accepted);
}

INSTANTIATE_TEST_SUITE_P(Readers, JsonFuzz, testing::ValuesIn(kReaders),
                         [](const auto& test) { return std::string(test.param.kind); });

// Every number of a profile set to 0, and every list and object emptied, one at a time.
std::vector<std::pair<std::string, Json>> degenerate(const Json& sound) {
  std::vector<std::pair<std::string, Json>> cases;
  const auto visit = [&](auto& self, const Json::json_pointer& place) -> void {
    const Json& value = sound.at(place);
    const auto with = [&](Json replaced) {
      Json json = sound;
      json.at(place) = std::move(replaced);
      cases.emplace_back(place.to_string(), std::move(json));
    };
    if (value.is_number()) with(0);
    if (!value.is_structured()) return;
    with(value.is_array() ? Json::array() : Json::object());
    if (value.is_array())
      for (std::size_t i = 0; i < value.size(); ++i) self(self, place / i);
    else
      for (const auto& [key, unused] : value.items()) self(self, place / key);
  };
  for (const auto& [key, unused] : sound.items()) visit(visit, Json::json_pointer() / key);
  return cases;
}

void expect_finite(const Plan& plan, const Profile& profile, CostKind kind) {
  const auto cost = make_cost_model({.kind = kind, .global_batch = plan.global_batch}, plan.model,
                                    plan.cluster, &profile);
  const Prediction prediction = price_plan(plan, *cost);
  EXPECT_TRUE(std::isfinite(prediction.iteration.value()));
  EXPECT_GT(prediction.iteration, Seconds());
  for (const StagePrediction& stage : prediction.stages) {
    EXPECT_GE(stage.peak, Bytes());
    for (const Seconds time :
         {stage.times.forward, stage.times.backward_input, stage.times.backward_weight,
          stage.times.reduce, stage.times.update, stage.times.transfer})
      EXPECT_TRUE(std::isfinite(time.value())) << time.value();
  }
}

TEST(ProfileFuzz, DegenerateFieldsAreRefusedOrPricedFinite) {
  const std::vector<Plan> plans = {small_plan("gpt2", "a100-80g-8", 0),
                                   small_plan("gpt2-xl", "a100-80g-8", 6)};
  int refused = 0, priced = 0;
  for (const auto& [place, json] : degenerate(parse_json(profiles().front(), "sound"))) {
    SCOPED_TRACE(place);
    try {
      const Profile profile = profile_from_json(json, "fuzz");
      for (const Plan& plan : plans) expect_finite(plan, profile, CostKind::measured);
      ++priced;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(priced, 20);
}

}  // namespace
}  // namespace braid
