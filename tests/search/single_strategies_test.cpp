// One strategy for all layers is a plan that the papers' searches could choose too.

#include <gtest/gtest.h>

#include "planner/core/json.h"
#include "planner/search/search.h"

namespace braid {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";
constexpr double kRounding = 1e-9;

struct Case {
  std::string fact;
  std::string model;
  int blocks;
  std::int64_t batch;
  int gigabytes;
  Algorithm single;  // the one that is hard to reach
};

std::vector<Case> cases() {
  return {
      {"replicas_may_be_plain", "bert-huge-32", 8, 256, 6, Algorithm::dp},
      {"gradients_are_reduced_once_an_iteration", "bert-huge-32", 8, 256, 10, Algorithm::dp},
      {"zero2_gathers_what_it_updated", "vit-huge-32", 8, 256, 7, Algorithm::zero3},
      {"a_remainder_of_blocks_is_spread", "vit-huge-32", 12, 256, 3, Algorithm::pp},
  };
}

double time_of(const Case& c, Algorithm algorithm) {
  const std::filesystem::path file = kConfigs / "models" / (c.model + ".json");
  Json json = read_json(file);
  json["num_hidden_layers"] = c.blocks;
  SearchOptions options;
  options.algorithm = algorithm;
  options.global_batch = c.batch;
  options.memory_limit = Bytes(c.gigabytes * 1'000'000'000LL);
  options.precision = Precision::fp32;
  options.prove = false;
  const SearchResult result =
      search(model_from_json(json, file.string()),
             read_cluster(kConfigs / "clusters" / "titan-rtx-1x8.json"), nullptr, options);
  return result.plan ? result.plan->prediction.iteration.value() : kForever.value();
}

class SingleStrategies : public testing::TestWithParam<Case> {};

TEST_P(SingleStrategies, AreNotAheadOfGalvatronAndBmw) {
  const Case& c = GetParam();
  const double single = time_of(c, c.single);
  ASSERT_LT(single, kForever.value());
  EXPECT_LE(time_of(c, Algorithm::galvatron), single * (1 + kRounding));
  EXPECT_LE(time_of(c, Algorithm::bmw), single * (1 + kRounding));
}

INSTANTIATE_TEST_SUITE_P(Search, SingleStrategies, testing::ValuesIn(cases()),
                         [](const auto& row) { return row.param.fact; });

// A step, as it is played, may need more than its layers add up to. What would be fastest then does
// not fit, but what else a space has still counts.
TEST(Spaces, LargerOnesAreNotBehindAtAnyMemory) {
  for (const int gigabytes : {9, 11}) {
    const Case c{"", "bert-huge-32", 32, 64, gigabytes, Algorithm::zero3};
    double slowest = std::min(time_of(c, Algorithm::zero3), time_of(c, Algorithm::dp));
    for (const Algorithm larger : {Algorithm::galvatron, Algorithm::bmw, Algorithm::exact}) {
      const double time = time_of(c, larger);
      EXPECT_LE(time, slowest * (1 + kRounding)) << name_of(larger) << " in " << gigabytes << " GB";
      slowest = std::min(slowest, time);
    }
  }
}

}  // namespace
}  // namespace braid
