// No reader takes a number without a limit: an infinity or a NaN that comes of one ends in an
// index, a loop or the memory of the machine.

#include "planner/core/limits.h"

#include <gtest/gtest.h>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "tests/plan/sample_plan.h"

namespace braid {
namespace {

std::filesystem::path source_dir() { return BRAID_SOURCE_DIR; }

using Read = void (*)(const Json&);

struct Format {
  const char* name;
  Json json;
  Read read;
};

std::vector<Format> formats() {
  return {
      {"plan", to_json(two_stage_plan()), [](const Json& json) { plan_from_json(json, "plan"); }},
      {"model", to_json(read_model(source_dir() / "configs/models/llama3-8b.json")),
       [](const Json& json) { model_from_json(json, "model"); }},
      {"cluster", read_json(source_dir() / "configs/clusters/a100-v100-mixed.json"),
       [](const Json& json) { cluster_from_json(json, "cluster"); }},
      {"measured cluster", to_json(read_cluster(source_dir() / "configs/clusters/h100-2x8.json")),
       [](const Json& json) { cluster_from_json(json, "cluster"); }},
  };
}

bool refused(const Format& format, const Json::json_pointer& place, const Json& value) {
  Json edited = format.json;
  edited[place] = value;
  try {
    format.read(edited);
    return false;
  } catch (const Error&) {
    return true;
  }
}

TEST(Limits, HoldForEveryNumberOfEveryFile) {
  for (const Format& format : formats()) {
    EXPECT_NO_THROW(format.read(format.json)) << format.name;
    int numbers = 0;
    const Json flat = format.json.flatten();
    for (const auto& [key, value] : flat.items()) {
      if (!value.is_number()) continue;
      ++numbers;
      const Json::json_pointer place(key);
      for (const Json& large : {Json(1e300), Json(-1e300)})
        EXPECT_TRUE(refused(format, place, large)) << format.name << key << " " << large;
      EXPECT_TRUE(!value.is_number_integer() || refused(format, place, std::int64_t{1} << 62))
          << format.name << key;
    }
    EXPECT_GE(numbers, 5) << format.name;
  }
}

TEST(Limits, AreRangesWithAName) {
  for (const WholeLimit& limit :
       {limits::kTokens, limits::kWidth, limits::kDevices, limits::kMemory, limits::kGlobalBatch,
        limits::kMicroBatches, limits::kPasses, limits::kPlannedBytes, limits::kCount}) {
    EXPECT_LT(limit.low, limit.high) << limit.name;
    EXPECT_EQ(IntRange(limit).high, limit.high);
    EXPECT_EQ(limit.or_zero().low, 0);
  }
}

}  // namespace
}  // namespace braid
