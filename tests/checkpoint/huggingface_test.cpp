#include "runtime/checkpoint/huggingface.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "planner/core/json.h"
#include "runtime/comm/in_process.h"
#include "tests/support/files.h"
#include "tests/support/random_plan.h"
#include "tests/support/tensors.h"

namespace braid::checkpoint {
namespace {

Model opt_model() {
  const Json json = {{"model_type", "opt"},   {"hidden_size", 8}, {"num_attention_heads", 2},
                     {"ffn_dim", 16},         {"vocab_size", 11}, {"max_position_embeddings", 16},
                     {"num_hidden_layers", 2}};
  return model_from_json(json, "opt");
}

TEST(HuggingFace, ParametersHaveTheNamesOfPublishedCheckpoints) {
  struct Case {
    Model model;
    int layer;
    const char* name;
    Source source;
  };
  const Model gpt2 = tiny_model("gpt2", 12, 16), qwen3 = tiny_model("qwen3", 12, 16);
  const Model qwen2 = tiny_model("qwen2", 2, 16), mixtral = tiny_model("mixtral", 2, 16);
  const Case cases[] = {
      {gpt2, 0, "table", {"transformer.wte.weight"}},
      {gpt2, 0, "positions", {"transformer.wpe.weight"}},
      {gpt2, 1, "attention.q.weight", {"transformer.h.0.attn.c_attn.weight", true, 0, 3}},
      {gpt2, 12, "attention.v.weight", {"transformer.h.11.attn.c_attn.weight", true, 2, 3}},
      {gpt2, 2, "attention.k.bias", {"transformer.h.1.attn.c_attn.bias", false, 1, 3}},
      {gpt2, 2, "ffn.down.weight", {"transformer.h.1.mlp.c_proj.weight", true}},
      {gpt2, 13, "norm.bias", {"transformer.ln_f.bias"}},
      {opt_model(), 0, "positions", {"model.decoder.embed_positions.weight"}},
      {opt_model(), 2, "ffn.norm.bias", {"model.decoder.layers.1.final_layer_norm.bias"}},
      {opt_model(),
       2,
       "attention.out.weight",
       {"model.decoder.layers.1.self_attn.out_proj.weight"}},
      {opt_model(), 3, "norm.weight", {"model.decoder.final_layer_norm.weight"}},
      {qwen3, 11, "attention.q_norm.weight", {"model.layers.10.self_attn.q_norm.weight"}},
      {qwen3, 1, "ffn.gate.weight", {"model.layers.0.mlp.gate_proj.weight"}},
      {qwen3, 13, "matrix", {"lm_head.weight"}},
      {qwen2, 1, "attention.k.bias", {"model.layers.0.self_attn.k_proj.bias"}},
      {mixtral, 2, "ffn.router.weight", {"model.layers.1.block_sparse_moe.gate.weight"}},
      {mixtral,
       2,
       "ffn.experts.3.down.weight",
       {"model.layers.1.block_sparse_moe.experts.3.w2.weight"}},
      {mixtral,
       2,
       "ffn.experts.3.up.weight",
       {"model.layers.1.block_sparse_moe.experts.3.w3.weight"}},
  };
  for (const Case& c : cases)
    EXPECT_EQ(source_of(c.model, c.layer, c.name), c.source)
        << c.model.family << ", layer " << c.layer << ": " << c.name;
}

// Every parameter that the runtime declares for a model has a name, and no two the same place.
TEST(HuggingFace, EveryParameterOfEveryFamilyHasAPlaceOfItsOwn) {
  std::vector<Model> models = {opt_model()};
  for (const std::string& name : kTinyModels) models.push_back(tiny_model(name, 2, 16));
  for (const Model& model : models) {
    std::set<std::tuple<std::string, int>> places;
    comm::run_in_process(1, [&](comm::Group& world) {
      parallel::Groups groups(world);
      const models::RankModel rank_model = models::build(
          reference_plan(model, 1), 0, parallel::fp64_numerics(at::kMeta), groups, {});
      for (std::size_t i = 0; i < rank_model.layers.size(); ++i)
        for (const parallel::ParameterSpec& spec : rank_model.layers[i]->parameters().specs()) {
          const Source source = source_of(model, rank_model.indices[i], spec.name);
          EXPECT_TRUE(places.insert({source.tensor, source.part}).second) << source.tensor;
        }
    });
  }
}

struct File {
  std::string name;
  std::string dtype = "F32";
  std::vector<std::int64_t> shape;
};

// Tensors that hold 0, 1, 2, …
void write(const std::filesystem::path& path, const std::vector<File>& files) {
  const at::Tensor numbers = at::arange(1000, at::TensorOptions(at::kFloat));
  std::vector<NamedTensor> tensors;
  for (const File& file : files) {
    auto bytes = static_cast<std::size_t>(find_safetensors_type(file.dtype)->bytes);
    for (const std::int64_t size : file.shape) bytes *= static_cast<std::size_t>(size);
    tensors.push_back({file.name,
                       {.dtype = file.dtype,
                        .shape = file.shape,
                        .data = static_cast<const std::byte*>(numbers.const_data_ptr()),
                        .bytes = bytes}});
  }
  write_safetensors(path, tensors);
}

const parallel::ParameterSpec kV = {.name = "attention.v.weight", .shape = {2, 4}};
const parallel::ParameterSpec kOut = {.name = "attention.out.weight", .shape = {2, 4}};

TEST(HuggingFace, PartsOfATransposedMatrixAreRowsOfOurs) {
  const ScratchFolder folder;
  write(folder / "model.safetensors",
        {{.name = "h.0.attn.c_attn.weight", .shape = {4, 6}}});  // without "transformer."
  const Checkpoint checkpoint(folder / "model.safetensors");
  const at::Tensor v = checkpoint.parameter(tiny_model("gpt2", 1, 16), 1, kV);
  // Columns 4 and 5 of [[0, 1, …, 5], [6, …], …].
  const at::Tensor expected = at::arange(24, at::TensorOptions(at::kFloat)).view({4, 6});
  EXPECT_TRUE(identical(v.contiguous(), expected.narrow(1, 4, 2).t().contiguous()));
}

TEST(HuggingFace, AFolderOfFilesIsOneCheckpoint) {
  const ScratchFolder folder;
  const Model model = tiny_model("llama", 2, 16);
  write(folder / "model-00001-of-00002.safetensors",
        {{.name = "model.layers.0.self_attn.o_proj.weight", .shape = {2, 4}}});
  write(folder / "model-00002-of-00002.safetensors",
        {{.name = "model.layers.1.self_attn.o_proj.weight", .dtype = "BF16", .shape = {2, 4}}});
  write_bytes(folder / "config.json", "{}");
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.parameter(model, 1, kOut).scalar_type(), at::kFloat);
  EXPECT_EQ(checkpoint.parameter(model, 2, kOut).scalar_type(), at::kBFloat16);
}

TEST(HuggingFace, MistakesNameFileAndTensor) {
  const ScratchFolder folder;
  const Model model = tiny_model("llama", 2, 16);
  const auto path = folder / "model.safetensors";
  write(path,
        {{.name = "model.layers.0.self_attn.v_proj.weight", .shape = {2, 5}},
         {.name = "model.layers.0.self_attn.o_proj.weight", .dtype = "I32", .shape = {2, 4}}});
  const Checkpoint checkpoint(path);

  Mistake mistake = mistake_of("a shape", [&] { checkpoint.parameter(model, 1, kV); });
  EXPECT_TRUE(holds(mistake.what, "[2, 5], the model's is [2, 4]"));
  EXPECT_EQ(mistake.where, path.string() + ": tensor 'model.layers.0.self_attn.v_proj.weight'");

  mistake = mistake_of("a dtype", [&] { checkpoint.parameter(model, 1, kOut); });
  EXPECT_TRUE(holds(mistake.what, "I32"));
  EXPECT_EQ(mistake.where, path.string() + ": tensor 'model.layers.0.self_attn.o_proj.weight'");

  mistake = mistake_of("an absence", [&] { checkpoint.parameter(model, 2, kOut); });
  EXPECT_TRUE(holds(mistake.what, "'model.layers.1.self_attn.o_proj.weight'"));
  EXPECT_TRUE(holds(mistake.what, "nearest is 'model.layers.0.self_attn.o_proj.weight'"));
  EXPECT_EQ(mistake.where, path.string());

  mistake = mistake_of("a prefix", [&] { Checkpoint(path, "param.").parameter(model, 1, kOut); });
  EXPECT_TRUE(holds(mistake.what, "'param.model.layers.0.self_attn.o_proj.weight'"));

  Model unknown = model;
  unknown.family = "yolos";
  mistake = mistake_of("a family", [&] { checkpoint.parameter(unknown, 1, kOut); });
  EXPECT_TRUE(holds(mistake.where, "yolos"));
  EXPECT_TRUE(holds(mistake.fix, "gpt2, opt, llama"));

  mistake = mistake_of("a parameter", [&] {
    checkpoint.parameter(model, 1, {.name = "attention.gate.weight", .shape = {2, 4}});
  });
  EXPECT_TRUE(holds(mistake.what, "attention.gate.weight of blocks.0"));

  write(folder / "copy.safetensors",
        {{.name = "model.layers.0.self_attn.v_proj.weight", .shape = {2, 5}}});
  mistake = mistake_of("a copy", [&] { const Checkpoint twice(folder.path()); });
  EXPECT_TRUE(holds(mistake.what, "two files"));
  EXPECT_TRUE(holds(mistake.where, "copy.safetensors"));

  const ScratchFolder empty;
  mistake = mistake_of("an empty folder", [&] { const Checkpoint none(empty.path()); });
  EXPECT_EQ(mistake.where, empty.path().string());
}

}  // namespace
}  // namespace braid::checkpoint
