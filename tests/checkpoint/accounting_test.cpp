// Published weights are the model's to the last tensor: none is passed over, and tied copies agree.

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "planner/core/error.h"
#include "runtime/checkpoint/huggingface.h"
#include "tests/support/files.h"
#include "tests/support/random_plan.h"

namespace braid::checkpoint {
namespace {

using testing::HasSubstr;

// Every tensor of the model under its published name, and more.
class Accounting : public testing::Test {
 protected:
  explicit Accounting(const std::string& model = "llama_tied") : model_(tiny_model(model, 2, 16)) {
    for (const DeclaredParameter& declared : declared_parameters(model_)) {
      const Source source = source_of(model_, declared.layer, declared.spec.name);
      add(source.tensor, published_shape(source, model_, declared.layer, declared.spec));
    }
  }

  void add(const std::string& name, const std::vector<std::int64_t>& shape, double first = 0) {
    tensors_[name] = at::arange(elements(shape), at::TensorOptions(at::kFloat))
                         .add(first)
                         .reshape(shape)
                         .contiguous();
  }
  void rename(const std::string& from, const std::string& to) {
    tensors_[to] = tensors_.at(from);
    tensors_.erase(from);
  }
  Checkpoint written() const {
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : tensors_)
      named.push_back({name,
                       {.dtype = "F32",
                        .shape = tensor.sizes().vec(),
                        .data = static_cast<const std::byte*>(tensor.const_data_ptr()),
                        .bytes = tensor.nbytes()}});
    write_safetensors(folder_ / "model.safetensors", named);
    return Checkpoint(folder_ / "model.safetensors");
  }
  Mistake refusal() const {
    return mistake_of("the file", [&] { written().expect_accounted(model_); });
  }
  std::vector<std::int64_t> table_shape() const {
    return tensors_.at("model.embed_tokens.weight").sizes().vec();
  }

  Model model_;
  std::map<std::string, at::Tensor> tensors_;
  ScratchFolder folder_;
};

TEST_F(Accounting, TheModelsOwnTensorsAreAccountedFor) {
  EXPECT_NO_THROW(written().expect_accounted(model_));
}

TEST_F(Accounting, ATensorThatNobodyReadsIsNamed) {
  add("model.layers.0.mlp.extra_proj.weight", {2, 2});
  EXPECT_THAT(refusal().what, HasSubstr("'model.layers.0.mlp.extra_proj.weight'"));
}

TEST_F(Accounting, ALayerBeyondTheConfigsIsNamed) {
  add("model.layers.2.self_attn.q_proj.weight", {2, 2});
  EXPECT_THAT(refusal().what, HasSubstr("model.layers.2"));
}

TEST_F(Accounting, BuffersAndMomentsAreKnown) {
  add("model.layers.0.self_attn.rotary_emb.inv_freq", {4});
  add("optimizer.exp_avg.model.embed_tokens.weight", {2});
  EXPECT_NO_THROW(written().expect_accounted(model_));
}

TEST_F(Accounting, ATiedCopyMustHaveTheTablesValues) {
  add("lm_head.weight", table_shape());
  EXPECT_NO_THROW(written().expect_accounted(model_));
  add("lm_head.weight", table_shape(), 1);
  const Mistake found = refusal();
  EXPECT_THAT(found.what, HasSubstr("'lm_head.weight' differs from 'model.embed_tokens.weight'"));
  EXPECT_THAT(found.fix, HasSubstr("tie_word_embeddings"));
}

class BertAccounting : public Accounting {
 protected:
  BertAccounting() : Accounting("bert") {}
};

TEST_F(BertAccounting, FirstNamesOfNormsAndOtherHeadsAreKnown) {
  rename("bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.gamma");
  rename("bert.embeddings.LayerNorm.bias", "bert.embeddings.LayerNorm.beta");
  add("bert.pooler.dense.weight", {2, 2});
  add("cls.seq_relationship.bias", {2});
  EXPECT_NO_THROW(written().expect_accounted(model_));
}

class T5Accounting : public Accounting {
 protected:
  T5Accounting() : Accounting("t5_v1_1") {}
};

TEST_F(T5Accounting, AHeadOfItsOwnIsReadAndTablesMustAgree) {
  EXPECT_TRUE(tensors_.contains("lm_head.weight"));
  add("encoder.embed_tokens.weight", tensors_.at("shared.weight").sizes().vec());
  EXPECT_NO_THROW(written().expect_accounted(model_));
  add("encoder.embed_tokens.weight", tensors_.at("shared.weight").sizes().vec(), 1);
  EXPECT_THAT(refusal().what, HasSubstr("differs from 'shared.weight'"));
}

}  // namespace
}  // namespace braid::checkpoint
