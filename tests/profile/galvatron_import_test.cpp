// Galvatron's profile files, a tiny set of them, with every figure worked out by hand.

#include "planner/profile/galvatron_import.h"
#include "planner/core/file.h"

#include <gtest/gtest.h>

#include "planner/core/error.h"
#include "planner/core/json.h"

namespace braid {
namespace {

constexpr double kMegabyte = 1048576.0;

class GalvatronImport : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("braid_galvatron_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "hardware");
    std::filesystem::create_directories(folder_ / "tiny");
    const std::string hardware = "_1nodes_4gpus_per_node.json";
    write("hardware/allreduce_bandwidth" + hardware, R"({
      "allreduce_size_4_consec_1": 100, "allreduce_size_2_consec_1": 200,
      "allreduce_size_2_consec_0": 50})");
    write("hardware/p2p_bandwidth" + hardware, R"({"pp_size_2": 10, "pp_size_4": 20})");
    write("hardware/sp_time" + hardware, R"({
      "allreduce_size_4_1MB_time": 0.5, "all2all_size_2_16MB_time": 2})");
    write("hardware/overlap_coefficient.json", R"({"overlap_coe": 1.25})");
    write("tiny/computation_profiling_bf16_tiny.json", R"({
      "layernum[1]_bsz2_seq128": 99,
      "layertype_0_bsz2_seq128": 1.5, "layertype_other_0_bsz2_seq128": 4})");
    write("tiny/memory_profiling_bf16_tiny.json", R"({
      "1_1_8_sp": {},
      "layertype_0_sp": {"128": {"parameter_size": 8,
        "tp_activation_per_bsz_dict": {"1": 4, "2": 2, "checkpoint": 0.5}}},
      "other_memory_pp_off_sp": {"128": {
        "model_states": {"1": 48, "2": 24}, "activation": {"1": 3}}},
      "other_memory_pp_on_first_sp": {"128": {
        "model_states": {"1": 16}, "activation": {"1": 1}}},
      "other_memory_pp_on_last_sp": {"128": {
        "model_states": {"1": 32}, "activation": {"1": 2}}}})");
    source_ = {.hardware = folder_ / "hardware",
               .model = folder_ / "tiny",
               .layers = {{.hidden = 64, .sequence = 128, .count = 3}},
               .nodes = 1,
               .devices_per_node = 4};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& file, const std::string& text) const {
    write_text(folder_ / file, text);
  }

  std::filesystem::path folder_;
  GalvatronSource source_;
};

TEST_F(GalvatronImport, ReadsComputeAndMemory) {
  const Profile profile = import_galvatron(source_);
  const MeasuredLayer* layer = profile.layer("layer0");
  ASSERT_NE(layer, nullptr);
  ASSERT_EQ(layer->compute.size(), 1U);
  EXPECT_EQ(layer->compute[0].samples, 2.0);
  EXPECT_EQ(layer->compute[0].sequence, 128);
  EXPECT_DOUBLE_EQ(layer->compute[0].forward.value(), 3e-3);  // 1.5 ms a sample, two samples
  EXPECT_EQ(layer->parameter_bytes, 8 * kMegabyte);
  EXPECT_EQ(layer->saved, (BySplit{{1, 4 * kMegabyte}, {2, 2 * kMegabyte}}));
  EXPECT_EQ(layer->saved_full, 0.5 * kMegabyte);
  const MeasuredLayer* outside = profile.layer("outside");
  ASSERT_NE(outside, nullptr);
  EXPECT_DOUBLE_EQ(outside->compute.at(0).forward.value(), 8e-3);
  const MeasuredOutside nothing;
  EXPECT_EQ(profile.only_stage.value_or(nothing).states,
            (BySplit{{1, 48 * kMegabyte}, {2, 24 * kMegabyte}}));
  EXPECT_EQ(profile.first_stage.value_or(nothing).activations, (BySplit{{1, 1 * kMegabyte}}));
  EXPECT_EQ(profile.last_stage.value_or(nothing).activations, (BySplit{{1, 2 * kMegabyte}}));
}

TEST_F(GalvatronImport, ReadsLinks) {
  const Profile profile = import_galvatron(source_);
  struct Expected {
    Collective op;
    int ranks, stride;
    double megabytes_per_millisecond;
  };
  constexpr Expected kExpected[] = {
      {Collective::all_reduce, 4, 1, 100},    {Collective::all_reduce, 2, 1, 200},
      {Collective::all_reduce, 2, 2, 50},      // not consecutive: every second of four devices
      {Collective::point_to_point, 2, 2, 10},  // two stages of two devices
      {Collective::point_to_point, 2, 1, 20},
  };
  ASSERT_EQ(profile.bandwidths.size(), std::size(kExpected));
  for (std::size_t i = 0; i < std::size(kExpected); ++i) {
    EXPECT_EQ(profile.bandwidths[i].op, kExpected[i].op) << i;
    EXPECT_EQ(profile.bandwidths[i].ranks, kExpected[i].ranks) << i;
    EXPECT_EQ(profile.bandwidths[i].stride, kExpected[i].stride) << i;
    EXPECT_DOUBLE_EQ(profile.bandwidths[i].bandwidth.value(),
                     kExpected[i].megabytes_per_millisecond * kMegabyte * 1e3)
        << i;
  }
  ASSERT_EQ(profile.collectives.size(), 2U);
  EXPECT_EQ(profile.collectives[0].op, Collective::all_reduce);
  EXPECT_EQ(profile.collectives[0].bytes, Bytes(1 << 20));
  EXPECT_DOUBLE_EQ(profile.collectives[0].seconds.value(), 0.5e-3);
  EXPECT_EQ(profile.collectives[1].op, Collective::all_to_all);
  EXPECT_EQ(profile.collectives[1].ranks, 2);
  EXPECT_EQ(profile.collectives[1].bytes, Bytes(16 << 20));
  EXPECT_EQ(profile.overlap_slowdown, 1.25);
}

TEST_F(GalvatronImport, CarriesModelAndCluster) {
  const Profile profile = import_galvatron(source_);
  const Model model = profile.model.value_or(Model{});
  const Cluster cluster = profile.cluster.value_or(Cluster{});
  ASSERT_FALSE(model.layers.empty() || cluster.groups.empty());
  EXPECT_EQ(model.name, "tiny");
  EXPECT_EQ(model.sequence, 128);
  EXPECT_EQ(model.layers, (std::vector<int>{0, 1, 1, 1, 2}));
  EXPECT_EQ(model.type_of(1).shape.hidden, 64);
  EXPECT_EQ(model.type_of(1).shape.heads, 0);
  EXPECT_EQ(cluster.num_devices(), 4);
  EXPECT_DOUBLE_EQ(cluster.groups.front().inside.bandwidth.value(), 100e3 * kMegabyte);
}

TEST_F(GalvatronImport, CanBeWrittenAndReadAgain) {
  const std::string text = to_json(import_galvatron(source_)).dump(2);
  EXPECT_EQ(to_json(profile_from_json(parse_json(text, "p.json"), "p.json")).dump(2), text);
}

TEST_F(GalvatronImport, ReadsSeveralLayerTypes) {
  source_.layers.push_back({.hidden = 64, .sequence = 128, .count = 2});
  write("tiny/computation_profiling_bf16_tiny.json", R"({
    "layertype_0_bsz1_seq128": 1, "layertype_1_bsz1_seq128": 2,
    "layertype_other_0_bsz1_seq128": 4})");
  const std::string layer =
      R"({"128": {"parameter_size": 8, "tp_activation_per_bsz_dict": {"1": 4, "checkpoint": 1}}})";
  const std::string outside =
      R"({"[128,128]": {"model_states": {"1": 16}, "activation": {"1": 1}}})";
  write("tiny/memory_profiling_bf16_tiny.json",
        R"({"layertype_0_sp": )" + layer + R"(, "layertype_1_sp": )" + layer +
            R"(, "other_memory_pp_off_sp": )" + outside + R"(, "other_memory_pp_on_first_sp": )" +
            outside + R"(, "other_memory_pp_on_last_sp": )" + outside + "}");
  const Profile profile = import_galvatron(source_);
  EXPECT_EQ(profile.model.value_or(Model{}).layers, (std::vector<int>{0, 1, 1, 1, 2, 2, 3}));
  EXPECT_DOUBLE_EQ(profile.layer("layer1")->compute.at(0).forward.value(), 2e-3);
}

TEST_F(GalvatronImport, MissesEveryFile) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
    if (entry.is_regular_file()) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 6U);
  for (const auto& file : files) {
    const std::string text = read_text(file);
    std::filesystem::remove(file);
    EXPECT_THROW(import_galvatron(source_), Error) << file;
    write_text(file, text.substr(0, text.size() / 2));
    EXPECT_THROW(import_galvatron(source_), Error) << "half of " << file;
    write_text(file, text);
  }
  EXPECT_NO_THROW(import_galvatron(source_));
  source_.hardware = folder_ / "none";
  EXPECT_THROW(import_galvatron(source_), Error);
}

TEST_F(GalvatronImport, MissesLayerTypesSequencesAndNodes) {
  GalvatronSource two_types = source_;
  two_types.layers.push_back(source_.layers.front());
  EXPECT_THROW(import_galvatron(two_types), Error);
  GalvatronSource longer = source_;
  longer.layers.front().sequence = 256;
  EXPECT_THROW(import_galvatron(longer), Error);
  GalvatronSource more_nodes = source_;
  more_nodes.nodes = 2;
  EXPECT_THROW(import_galvatron(more_nodes), Error);
}

TEST_F(GalvatronImport, RefusesForeignKeys) {
  write("hardware/p2p_bandwidth_1nodes_4gpus_per_node.json", R"({"stages_2": 10})");
  try {
    import_galvatron(source_);
    ADD_FAILURE() << "a foreign key went unnoticed";
  } catch (const Error& error) {
    EXPECT_NE(error.mistake().where.find("p2p_bandwidth"), std::string::npos);
    EXPECT_NE(error.mistake().where.find("stages_2"), std::string::npos);
  }
}

TEST(GalvatronLayers, AreParsed) {
  const auto one = parse_galvatron_layers("4096:2048:32");
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].hidden, 4096);
  EXPECT_EQ(one[0].sequence, 2048);
  EXPECT_EQ(one[0].count, 32);
  const auto two = parse_galvatron_layers("1024:512:24,1024:256:12");
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[1].sequence, 256);
  EXPECT_EQ(two[1].count, 12);
}

TEST(GalvatronLayers, AreRefused) {
  for (const char* text :
       {"", "4096", "4096:2048", "4096:2048:", ":2048:32", "a:b:c", "0:1:1", "1:-2:3", "1:2:3,",
        "1:2:3;4:5:6", "1:2:3x", "1:2:3:4", " 1:2:3", "99999999999:1:1"}) {
    try {
      parse_galvatron_layers(text);
      ADD_FAILURE() << "'" << text << "' passed";
    } catch (const Error& error) {
      EXPECT_EQ(error.mistake().where, "--layers");
      EXPECT_FALSE(error.mistake().fix.empty());
    }
  }
}

}  // namespace
}  // namespace braid
