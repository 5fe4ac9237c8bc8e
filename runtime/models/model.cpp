#include "runtime/models/model.h"

#include <fmt/core.h>

#include <algorithm>

#include "planner/core/error.h"
#include "planner/model/layer_name.h"
#include "runtime/models/block.h"

namespace braid::models {

namespace {

// What stands in the way of running a layer; nothing: it runs.
std::optional<std::string> unsupported(const LayerShape& s) {
  switch (s.kind) {
    case LayerKind::embedding:
      if (s.patch_inputs > 0 && s.embedding_norm) return "a norm behind its patches";
      if (s.final_norm) return "the norm of another layer";
      if (s.position_bias > 0) return "a relative-position table";
      return std::nullopt;
    case LayerKind::block:
      if (s.attention == AttentionKind::window) return "attention within windows";
      if (s.cross_tokens > 0) return "cross-attention";
      if (s.position_bias > 0) return "a relative-position table";
      if (s.shared_ffn > 0) return "a shared expert";
      if (s.ffn == 0 || s.heads == 0) return "a block without heads or feed-forward";
      if (s.experts > 0 && s.ffn_bias) return "experts with biases";
      if (s.experts > 0 && s.post_norm) return "experts ahead of their norm";
      return std::nullopt;
    case LayerKind::merge:
      return "patch merging";
    case LayerKind::head:
      if (s.pooled && !s.class_token) return "a mean of all tokens";
      if (s.head_dense > 0 && s.head_dense != s.hidden) return "a dense layer of another width";
      if (s.head_dense > 0 && (s.pooled || s.final_norm)) return "a dense layer beside a norm";
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

void require_supported(const Model& model) {
  for (const LayerType& type : model.types)
    if (const auto reason = unsupported(type.shape))
      throw Error({.what = fmt::format("the runtime cannot train '{}' yet: its {} has {}",
                                       model.name, type.name, *reason),
                   .where = fmt::format("model family '{}'", model.family),
                   .fix = "train a bert, bloom, gpt2, opt, llama, mistral, qwen2, qwen3, mixtral "
                          "or vit model"});
}

bool is_causal(const Model& model) {
  return std::ranges::any_of(model.types, [](const LayerType& type) {
    return type.shape.attention == AttentionKind::causal;
  });
}

std::vector<parallel::Layer*> RankModel::all() const {
  std::vector<parallel::Layer*> pointers;
  pointers.reserve(layers.size());
  for (const auto& layer : layers) pointers.push_back(layer.get());
  return pointers;
}

parallel::FlatBuffer::Usage RankModel::bytes() const {
  parallel::FlatBuffer::Usage total;
  for (const auto& layer : layers) {
    const parallel::FlatBuffer::Usage one = layer->parameters().bytes();
    total.weights += one.weights;
    total.gradients += one.gradients;
    total.optimizer += one.optimizer;
  }
  if (tied) {
    total.weights += tied->weight_bytes();
    total.gradients += tied->gradient_bytes();
  }
  return total;
}

RankModel build(const Plan& plan, int device, const parallel::Numerics& numerics,
                parallel::Groups& groups, const ModelOptions& options) {
  require_supported(plan.model);
  const bool causal = is_causal(plan.model);
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(stage_of(device, plan.mesh()))];
  RankModel model;
  model.indices = layers_of(stage);
  for (std::size_t i = 0; i < model.indices.size(); ++i) {
    const int index = model.indices[i];
    parallel::Site site =
        parallel::make_site(plan, index, stage.strategies[i], device, causal, numerics, groups);
    const std::string name = layer_name(plan.model, index);
    switch (site.shape.kind) {
      case LayerKind::embedding: {
        if (site.shape.patch_inputs > 0) {
          auto patches = std::make_unique<PatchEmbedding>(name, std::move(site), options);
          model.patches = patches.get();
          model.layers.push_back(std::move(patches));
          break;
        }
        auto layer = std::make_unique<Embedding>(name, std::move(site), options);
        model.embedding = layer.get();
        model.layers.push_back(std::move(layer));
        break;
      }
      case LayerKind::head: {
        auto layer = std::make_unique<Head>(name, std::move(site));
        model.head = layer.get();
        model.layers.push_back(std::move(layer));
        break;
      }
      case LayerKind::block:
        model.layers.push_back(std::make_unique<Block>(name, std::move(site), options));
        break;
      case LayerKind::merge:
        internal_failure("merging is not supported", std::source_location::current());
    }
  }

  if (!plan.model.type_of(plan.model.num_layers() - 1).shape.tied) return model;
  if (plan.cluster.num_devices() == 1) {
    Embedding* embedding = model.embedding;
    model.head->share(
        {[embedding] { return embedding->parameters().weight(embedding->table()); },
         [embedding] {
           embedding->parameters().begin_gradients();  // ahead of the embedding's own backward
           return embedding->parameters().gradient_sum(embedding->table());
         }});
    return model;
  }
  if (model.embedding == nullptr && model.head == nullptr) return model;
  model.tied = std::make_unique<parallel::TiedTable>(plan, device, numerics, groups.world());
  if (model.embedding != nullptr) {
    model.tied->attach(model.embedding->parameters(), model.embedding->table());
    model.embedding->shares_gradients = true;
  }
  if (model.head != nullptr)
    model.head->share({[table = model.tied.get()] { return table->weight(); },
                       [table = model.tied.get()] { return ops::Sum{table->gradient()}; }});
  return model;
}

}  // namespace braid::models
