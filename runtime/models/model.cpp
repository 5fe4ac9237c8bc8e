#include "runtime/models/model.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "planner/core/error.h"
#include "planner/model/image.h"
#include "planner/model/layer_name.h"
#include "runtime/models/block.h"
#include "runtime/models/patch_merging.h"

namespace braid::models {

namespace {

// Of a block that attends within windows.
std::optional<std::string> unsupported_windows(const LayerShape& s) {
  const std::int64_t image = whole_root(s.tokens), side = whole_root(s.window);
  if (image == 0 || side == 0) return "windows or an image that are no squares";
  if (image % side != 0)
    return fmt::format("windows of {0} × {0} tokens that do not tile {1} × {1}", side, image);
  if (s.window_shift >= side) return "windows shifted by more than their side";
  if (s.position_bias != (2 * side - 1) * (2 * side - 1))
    return fmt::format("a relative-position table of {} offsets for windows of {} × {} tokens",
                       s.position_bias, side, side);
  if (s.rotary || s.alibi || s.bias_buckets > 0 || s.cross_tokens > 0)
    return "windows that are not Swin's";
  return std::nullopt;
}

// What stands in the way of running a layer; nothing: it runs.
std::optional<std::string> unsupported(const LayerShape& s) {
  switch (s.kind) {
    case LayerKind::embedding:
      if (s.patch_inputs > 0 && s.class_token && s.embedding_norm)
        return "a norm behind a class token";
      if (s.final_norm) return "the norm of another layer";
      if (s.carried_tokens > 0 && (s.positions > 0 || s.token_types > 0 || s.embedding_norm))
        return "a second stream with learned positions, segments or a norm";
      if (s.position_bias % 2 != 0) return "a relative-position table of one stack";
      return std::nullopt;
    case LayerKind::block:
      if (s.attention == AttentionKind::window) {
        if (auto reason = unsupported_windows(s)) return reason;
      } else if (s.position_bias > 0) {
        return "a relative-position table of its own";
      }
      if (s.cross_tokens > 0 && (s.qkv_bias || s.attention_out_bias || s.qk_norm || s.rotary ||
                                 s.alibi || s.post_norm || s.window > 0))
        return "cross-attention that is not T5's";
      if (s.shared_ffn > 0) return "a shared expert";
      if (s.ffn == 0 || s.heads == 0) return "a block without heads or feed-forward";
      if (s.experts > 0 && s.ffn_bias) return "experts with biases";
      if (s.experts > 0 && s.post_norm) return "experts ahead of their norm";
      return std::nullopt;
    case LayerKind::merge:
      if (whole_root(s.tokens) == 0 || whole_root(s.tokens) % 2 != 0)
        return "an image that is no square of an even side";
      return std::nullopt;
    case LayerKind::head:
      if (s.head_dense > 0 && s.head_dense != s.hidden) return "a dense layer of another width";
      if (s.head_dense > 0 && (s.pooled || s.final_norm)) return "a dense layer beside a norm";
      return std::nullopt;
  }
  return std::nullopt;
}

// What stands in the way of running layers one after the other: an encoder-decoder's two streams
// must reach from the embedding to the blocks that need them.
std::optional<std::string> unsupported_order(const Model& model) {
  const LayerShape& embedding = model.type_of(0).shape;
  std::int64_t carried = embedding.carried_tokens;
  for (int layer = 1; layer < model.num_layers() - 1; ++layer) {
    const LayerShape& s = model.type_of(layer).shape;
    const bool decodes = s.cross_tokens > 0;
    if (!decodes && s.carried_tokens != carried)
      return fmt::format("layer {} carries {} tokens of the decoder, the embedding makes {}", layer,
                         s.carried_tokens, embedding.carried_tokens);
    if (decodes && s.tokens != embedding.carried_tokens)
      return fmt::format("layer {} decodes {} tokens, the embedding makes {}", layer, s.tokens,
                         embedding.carried_tokens);
    if (decodes) carried = -1;  // no encoder follows
    if (s.bias_buckets > 0 && 2 * s.bias_buckets != embedding.position_bias)
      return fmt::format("layer {} shares {} buckets, the embedding has {} for two stacks", layer,
                         s.bias_buckets, embedding.position_bias);
  }
  return std::nullopt;
}

// How many layers of its type stand right ahead of a layer.
int place_in_run(const Model& model, int layer) {
  const auto type = [&](int i) { return model.layers[static_cast<std::size_t>(i)]; };
  int first = layer;
  while (first > 0 && type(first - 1) == type(layer)) --first;
  return layer - first;
}

}  // namespace

void require_supported(const Model& model) {
  for (const LayerType& type : model.types)
    if (const auto reason = unsupported(type.shape))
      throw Error({.what = fmt::format("the runtime cannot train '{}' yet: its {} has {}",
                                       model.name, type.name, *reason),
                   .where = fmt::format("model family '{}'", model.family),
                   .fix = "train a bert, bloom, gpt2, opt, llama, mistral, qwen2, qwen3, mixtral, "
                          "swin, t5 or vit model"});
  if (const auto reason = unsupported_order(model))
    throw Error({.what = fmt::format("the runtime cannot train '{}': {}", model.name, *reason),
                 .where = fmt::format("model family '{}'", model.family),
                 .fix = "give an encoder-decoder the shapes that a t5 config is read as"});
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
  if (bias) {
    total.weights += bias->weight_bytes();
    total.gradients += bias->gradient_bytes();
  }
  return total;
}

void RankModel::send_copies() {
  if (tied) tied->send_weights();
  if (bias) bias->send_weights();
}

void RankModel::send_gradients_of_copies() {
  if (tied) tied->send_gradients();
  if (bias) bias->send_gradients();
}

namespace {

// Wholes of one group take turns, and the largest says for how much.
void make_room(const RankModel& model) {
  std::map<const comm::Group*, std::int64_t> largest;
  const auto each = [&](const auto& visit) {
    for (parallel::Layer* layer : model.all())
      for (parallel::FlatBuffer* buffer : layer->parameters().buffers())
        if (buffer->takes_turns()) visit(*buffer, largest[buffer->replicas()]);
  };
  each([](const parallel::FlatBuffer& buffer, std::int64_t& most) {
    most = std::max(most, buffer.padded());
  });
  each([](parallel::FlatBuffer& buffer, std::int64_t most) { buffer.set_room(most); });
}

}  // namespace

RankModel build(const Plan& plan, int device, const parallel::Numerics& numerics,
                parallel::Groups& groups, const ModelOptions& options) {
  require_supported(plan.model);
  const bool causal = is_causal(plan.model);
  const StagePlan& stage = plan.stages[static_cast<std::size_t>(stage_of(device, plan.mesh()))];
  RankModel model;
  model.indices = layers_of(stage);
  if (plan.model.type_of(0).shape.position_bias > 0)
    model.bias = std::make_unique<SharedBias>(plan, device, numerics, groups.world());
  for (std::size_t i = 0; i < model.indices.size(); ++i) {
    const int index = model.indices[i];
    parallel::Site site =
        parallel::make_site(plan, index, stage.strategies[i], device, causal, numerics, groups);
    if (place_in_run(plan.model, index) % 2 == 0) site.shape.window_shift = 0;
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
        if (model.bias) {
          model.bias->attach(layer->parameters(), layer->bias_tables());
          layer->shares_gradients = true;
        }
        model.layers.push_back(std::move(layer));
        break;
      }
      case LayerKind::head: {
        auto layer = std::make_unique<Head>(name, std::move(site));
        model.head = layer.get();
        model.layers.push_back(std::move(layer));
        break;
      }
      case LayerKind::block: {
        auto block = std::make_unique<Block>(name, std::move(site), options);
        if (block->relative_bias() != nullptr)
          model.bias->add_block(*block->relative_bias(), block->site().shape.cross_tokens > 0);
        model.layers.push_back(std::move(block));
        break;
      }
      case LayerKind::merge:
        model.layers.push_back(std::make_unique<PatchMerging>(name, std::move(site)));
        break;
    }
  }
  make_room(model);

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
