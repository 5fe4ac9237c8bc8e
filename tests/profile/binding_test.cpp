// A profile prices what it was measured for, and nothing else.

#include "planner/profile/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/error.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Model small_model() {
  LayerShape embedding{.kind = LayerKind::embedding, .tokens = 128, .hidden = 64};
  embedding.vocab = 1000;
  LayerShape block{.kind = LayerKind::block, .tokens = 128, .hidden = 64};
  block.attention = AttentionKind::causal;
  block.heads = block.kv_heads = 4;
  block.head_dim = 16;
  block.ffn = 256;
  LayerShape head{.kind = LayerKind::head, .tokens = 128, .hidden = 64};
  head.vocab = 1000;
  return {.name = "small",
          .family = "braid",
          .types = {{"embedding", embedding}, {"decoder", block}, {"head", head}},
          .layers = {0, 1, 1, 2},
          .sequence = 128};
}

Cluster small_cluster() {
  Cluster cluster;
  cluster.name = "two";
  cluster.device_types = {{.name = "EPYC",
                           .peak_bf16 = FlopsPerSecond(1e12),
                           .peak_fp32 = FlopsPerSecond(1e11),
                           .memory = Bytes(1 << 30),
                           .memory_bandwidth = BytesPerSecond(1e10)}};
  cluster.groups = {{1, 0, 2, {BytesPerSecond(1e9), Seconds(1e-6)}}};
  return cluster;
}

Profile small_profile() {
  Profile profile;
  profile.model = small_model();
  profile.cluster = small_cluster();
  profile.precision = Precision::fp32;
  profile.taken_on = {{"program", "braid 0.1.0"}, {"ranks", "2"}};
  MeasuredLayer layer;
  layer.type = "decoder";
  ComputeSample sample;
  sample.sequence = 128;
  sample.forward = Seconds(1e-2);
  layer.compute = {sample};
  profile.layers = {layer};
  return profile;
}

struct Asked {
  Model model = small_model();
  Cluster cluster = small_cluster();
  Precision precision = Precision::fp32;
  std::string program = "braid 0.1.0";
};
std::vector<std::string> misfits_of(const Profile& profile, const Asked& asked) {
  return misfits(profile, {asked.model, asked.cluster, asked.precision, asked.program});
}

TEST(ProfileBinding, HoldsForWhatWasMeasured) {
  EXPECT_THAT(misfits_of(small_profile(), {}), IsEmpty());
  EXPECT_EQ(not_comparable(small_profile()), "");
}

TEST(ProfileBinding, HoldsForAnyNumberOfLayersAndDevices) {
  Asked asked;
  asked.model.layers = {0, 1, 1, 1, 1, 2};
  asked.model.name = "deeper";
  asked.cluster.groups[0].count = 4;
  EXPECT_THAT(misfits_of(small_profile(), asked), IsEmpty());
}

TEST(ProfileBinding, NamesTheShapeThatDiffersWithBothValues) {
  Asked asked;
  asked.model.types[1].shape.ffn = 512;
  asked.model.types[2].shape.vocab = 2000;
  EXPECT_THAT(misfits_of(small_profile(), asked),
              ElementsAre("decoder.ffn: 256 in the profile, 512 here",
                          "head.vocab: 1000 in the profile, 2000 here"));
}

TEST(ProfileBinding, IgnoresNumbersThatCostNothing) {
  Asked asked;
  asked.model.types[1].shape.norm_epsilon = 1e-6;
  asked.model.types[1].shape.init_std = 1;
  EXPECT_THAT(misfits_of(small_profile(), asked), IsEmpty());
}

TEST(ProfileBinding, NamesSequencePrecisionDeviceAndProgram) {
  Asked asked;
  asked.model = with_sequence(small_model(), 64);
  asked.precision = Precision::bf16;
  asked.cluster.device_types[0].name = "A100";
  asked.program = "braid 0.2.0";
  EXPECT_THAT(misfits_of(small_profile(), asked),
              ElementsAre(HasSubstr("embedding.tokens: 128 in the profile, 64 here"),
                          HasSubstr("decoder.tokens"), HasSubstr("head.tokens"),
                          "device: 'EPYC' in the profile, 'A100' here",
                          "precision: fp32 in the profile, bf16 here",
                          "program: braid 0.1.0 in the profile, braid 0.2.0 here"));
}

TEST(ProfileBinding, NamesALayerThatWasNotTimed) {
  Asked asked;
  asked.model.types[1].name = "expert";
  EXPECT_THAT(misfits_of(small_profile(), asked),
              ElementsAre("layers 'expert': not in the profile"));
}

TEST(ProfileBinding, OfHardwareAloneHoldsForEveryModel) {
  Profile profile = small_profile();
  profile.model.reset();
  profile.layers.clear();
  Asked asked;
  asked.model.types[1].shape.ffn = 512;
  EXPECT_THAT(misfits_of(profile, asked), IsEmpty());
  EXPECT_EQ(not_comparable(profile), "");
}

TEST(ProfileBinding, OfAnImportSaysWhatItCannotTell) {
  Profile profile = small_profile();
  profile.model->types[1].shape.heads = 0;
  Asked asked;
  asked.model.types[1].shape.ffn = 512;
  asked.cluster.device_types[0].name = "A100";
  EXPECT_THAT(misfits_of(profile, asked), IsEmpty());
  EXPECT_EQ(not_comparable(profile), "layer shapes, sequence and device");
}

TEST(ProfileBinding, WithoutAModelStillKnowsTheLengthOfItsSamples) {
  Profile profile = small_profile();
  profile.model.reset();
  Asked asked;
  asked.model = with_sequence(small_model(), 64);
  EXPECT_THAT(misfits_of(profile, asked),
              ElementsAre("decoder.tokens: 128 in the profile, 64 here"));
}

TEST(ProfileBinding, TimesBeyondTheDevicesPeakAreImpossible) {
  Profile profile = small_profile();
  const Asked asked;
  const ProfileUse use{asked.model, asked.cluster, asked.precision, ""};
  EXPECT_THAT(impossible_times(profile, use), IsEmpty());
  EXPECT_NO_THROW(expect_holds(profile, "p.json", use));
  profile.layers[0].compute[0].forward = Seconds(1e-9);
  EXPECT_THAT(impossible_times(profile, use),
              ElementsAre(HasSubstr("decoder, 1 samples: forward in")));
  EXPECT_THROW(expect_holds(profile, "p.json", use), Error);
  Profile raised = profile;
  raise_peaks(raised);
  EXPECT_THAT(impossible_times(raised, use), IsEmpty());
  profile.model.reset();
  profile.cluster.reset();
  EXPECT_THAT(impossible_times(profile, use), testing::SizeIs(1)) << "shapes of what is asked for";
}

}  // namespace
}  // namespace braid
