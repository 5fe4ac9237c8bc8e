// What is saved is the published checkpoint again: names, shapes and bits.

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>

#include "planner/core/error.h"
#include "runtime/checkpoint/huggingface.h"
#include "runtime/comm/in_process.h"
#include "tests/support/files.h"
#include "tests/support/mistakes.h"
#include "tests/support/random_plan.h"

namespace braid::checkpoint {
namespace {

// Every parameter that the runtime declares for a model, as `value` gives it.
template <class Value>
std::vector<WholeParameter> all_parameters(const Model& model, const Value& value) {
  std::vector<WholeParameter> all;
  comm::run_in_process(1, [&](comm::Group& world) {
    parallel::Groups groups(world);
    const models::RankModel rank_model =
        models::build(reference_plan(model, 1), 0, parallel::fp64_numerics(at::kMeta), groups, {});
    for (std::size_t i = 0; i < rank_model.layers.size(); ++i)
      for (const parallel::ParameterSpec& spec : rank_model.layers[i]->parameters().specs())
        all.push_back({rank_model.indices[i], spec, value(rank_model.indices[i], spec)});
  });
  return all;
}

TEST(SavedCheckpoint, HasTheTensorsOfThePublishedOne) {
  const ScratchFolder folder;
  int num_saved = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(BRAID_SOURCE_DIR) / "tests/models/oracles")) {
    if (!entry.is_directory()) continue;
    const Model model = read_model(entry.path() / "config.json");
    if (model.types.front().shape.patch_inputs > 0) continue;
    const SafetensorsFile published(entry.path() / "oracle.safetensors");
    const Checkpoint checkpoint(published.path(), "param.");
    const auto file = folder / (model.name + ".safetensors");
    save_huggingface(file, model, all_parameters(model, [&](int layer, const auto& spec) {
                       return checkpoint.parameter(model, layer, spec);
                     }));
    const SafetensorsFile saved(file);
    EXPECT_EQ(saved.metadata(), (Metadata{{"format", "pt"}}));
    std::vector<std::string> expected;
    for (const std::string& name : published.names())
      if (name.starts_with("param.")) expected.push_back(name.substr(6));
    ASSERT_EQ(saved.names(), expected) << model.name;
    for (const std::string& name : expected) {
      const TensorView &ours = saved.at(name), &theirs = published.at("param." + name);
      EXPECT_EQ(ours.dtype, theirs.dtype) << name;
      ASSERT_EQ(ours.shape, theirs.shape) << name;
      EXPECT_EQ(std::memcmp(ours.data, theirs.data, ours.bytes), 0) << model.name << ": " << name;
    }
    ++num_saved;
  }
  EXPECT_GE(num_saved, 15);
}

TEST(SavedCheckpoint, OfImagesIsRefusedWithTheTensorsName) {
  const ScratchFolder folder;
  const Model model = tiny_model("vit", 2, 0);
  const auto parameters = all_parameters(
      model, [](int, const auto& spec) { return at::zeros(spec.shape, at::kDouble); });
  const Mistake mistake = mistake_of(
      "images", [&] { save_huggingface(folder / "model.safetensors", model, parameters); });
  EXPECT_TRUE(holds(mistake.what, "vit.embeddings."));
  EXPECT_TRUE(holds(mistake.where, "saving model 'vit'"));
}

}  // namespace
}  // namespace braid::checkpoint
