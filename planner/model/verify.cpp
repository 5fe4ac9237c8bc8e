// The rules a sound model keeps, whoever wrote it.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/core/error.h"
#include "planner/model/fields.h"
#include "planner/model/model.h"

namespace braid {

namespace {

// One layer type with the place that its messages name.
class TypeCheck {
 public:
  TypeCheck(const LayerType& type, std::size_t index, const std::string& source)
      : type_(type), where_(fmt::format("{}: types[{}]", source, index)) {}

  void run() const {
    const LayerShape& shape = type_.shape;
    require(!type_.name.empty(), "name", "a layer type has no name", "name it");
    for (const SizeField& field : kSizeFields) {
      const std::int64_t size = shape.*field.member;
      require(size >= 0 && size <= field.limit.high, field.name,
              fmt::format("{} is out of range", size),
              fmt::format("write a number from 0 to {}", field.limit.high));
    }
    for (const auto& field : kNumberFields)
      require_within(field.name, shape.*field.member, field.limit);
    check_scaling(shape.rotary_scaling);
    require_positive("tokens", shape.tokens);
    require_positive("hidden", shape.hidden);
    switch (shape.kind) {
      case LayerKind::embedding:
        return check_embedding(shape);
      case LayerKind::block:
        return check_block(shape);
      case LayerKind::merge:
        require_positive("merge_outputs", shape.merge_outputs);
        return require(shape.tokens % 4 == 0, "tokens",
                       fmt::format("{} tokens do not merge by four", shape.tokens),
                       "use a token count that four divides");
      case LayerKind::head:
        return require_positive("vocab", shape.vocab);
    }
  }

 private:
  void require(bool holds, const std::string& field, std::string what, std::string fix) const {
    if (holds) return;
    throw Error({.what = fmt::format("layer type '{}': {}", type_.name, what),
                 .where = fmt::format("{}.{}", where_, field),
                 .fix = std::move(fix)});
  }

  void require_positive(const std::string& field, std::int64_t size) const {
    require(size > 0, field, fmt::format("{} is {}", field, size), "give a positive number");
  }

  void require_within(const std::string& field, double number, const RealLimit& limit) const {
    require(std::isfinite(number) && number > 0, field, fmt::format("{} is {}", field, number),
            "give a positive number");
    require(number <= limit.high, field, fmt::format("{} is out of range", number),
            fmt::format("write a number up to {:g}", limit.high));
  }

  void check_scaling(const RotaryScaling& scaling) const {
    for (const auto& field : kScalingFields)
      require_within(fmt::format("rotary_scaling.{}", field.name), scaling.*field.member,
                     field.limit);
    require(scaling.original_positions >= 0 && scaling.original_positions <= limits::kTokens.high,
            "rotary_scaling.original_positions",
            fmt::format("{} is out of range", scaling.original_positions),
            fmt::format("write a number from 0 to {}", limits::kTokens.high));
    require(scaling.low_frequency < scaling.high_frequency, "rotary_scaling.high_frequency",
            fmt::format("the high frequency {} does not exceed the low one, {}",
                        scaling.high_frequency, scaling.low_frequency),
            fmt::format("give more than {}", scaling.low_frequency));
  }

  void check_embedding(const LayerShape& shape) const {
    require((shape.vocab > 0) != (shape.patch_inputs > 0), "vocab",
            "an embedding reads either ids or patches",
            "set vocab or patch_inputs, one of the two");
    require(
        shape.padding_id >= kNoPadding && shape.padding_id < std::max<std::int64_t>(1, shape.vocab),
        "padding_id", fmt::format("the padding token {} is no row of the table", shape.padding_id),
        "choose a token of the vocabulary, or leave it out");
    const std::int64_t reach = shape.positions - shape.position_offset;
    require(shape.positions == 0 || shape.tokens <= reach, "tokens",
            fmt::format("{} tokens are more than the {} learned positions", shape.tokens, reach),
            fmt::format("use at most {} tokens", reach));
  }

  void check_block(const LayerShape& shape) const {
    require(shape.attention != AttentionKind::none || shape.ffn > 0, "ffn",
            "a block has neither attention nor feed-forward", "give it heads or an ffn width");
    if (shape.attention == AttentionKind::none) {
      require(shape.heads == 0 && shape.cross_tokens == 0, "attention",
              "a block without attention has heads", "set attention, or drop the heads");
    } else {
      require_positive("heads", shape.heads);
      require_positive("kv_heads", shape.kv_heads);
      require_positive("head_dim", shape.head_dim);
      require(!shape.rotary || shape.head_dim % 2 == 0, "head_dim",
              fmt::format("rotary positions turn pairs, and a head of {} has one value left over",
                          shape.head_dim),
              "choose an even head_dim");
      require(shape.heads % shape.kv_heads == 0, "kv_heads",
              fmt::format("{} key-value heads do not divide {} heads", shape.kv_heads, shape.heads),
              fmt::format("choose a divisor of {}", shape.heads));
      require(shape.attention != AttentionKind::window || shape.window > 0, "window",
              "window attention has no window", "give the tokens of one window");
      require(shape.attention == AttentionKind::window || shape.window_shift == 0, "window_shift",
              "a block without windows shifts them", "set attention to \"window\", or drop it");
    }
    const std::int64_t chosen = shape.experts_per_token;
    require(shape.experts > 0 ? chosen >= 1 && chosen <= shape.experts : chosen == 0,
            "experts_per_token", fmt::format("{} experts a token of {}", chosen, shape.experts),
            "choose at least 1 and at most all of the experts");
    require(shape.experts == 0 || shape.ffn > 0, "ffn", "experts have no width",
            "give the ffn width of one expert");
    require(shape.shared_ffn == 0 || shape.experts > 0, "shared_ffn",
            "a shared expert stands without experts", "widen ffn, or set experts");
  }

  const LayerType& type_;
  std::string where_;
};

class OrderCheck {
 public:
  OrderCheck(const Model& model, const std::string& source) : model_(model), source_(source) {}

  void run() const {
    const int last = model_.num_layers() - 1;
    if (last < 2 || last >= limits::kLayers.high)
      fail("layers", fmt::format("a model of {} layers", last + 1),
           fmt::format("give an embedding, blocks and a head, at most {} in all",
                       limits::kLayers.high));
    check_indices();
    for (int i = 0; i <= last; ++i) {
      const LayerKind kind = shape(i).kind;
      if ((kind == LayerKind::embedding) != (i == 0) || (kind == LayerKind::head) != (i == last))
        fail(fmt::format("layers[{}]", i),
             fmt::format("layer {} of {} is of kind '{}'", i, last + 1, name_of(kind)),
             "begin with the embedding, end with the head, and put blocks and merges between");
    }
    for (int i = 0; i < last; ++i) check_junction(i);
    check_head(shape(0), shape(last));
    if (model_.sequence != shape(0).tokens)
      fail("sequence",
           fmt::format("the sequence is {}, its embedding has {} tokens", model_.sequence,
                       shape(0).tokens),
           "make the two equal");
    check_size();
  }

 private:
  const LayerShape& shape(int layer) const { return model_.type_of(layer).shape; }

  [[noreturn]] void fail(const std::string& place, std::string what, std::string fix) const {
    throw Error({.what = std::move(what),
                 .where = fmt::format("{}: {}", source_, place),
                 .fix = std::move(fix)});
  }

  void check_indices() const {
    std::set<int> used(model_.layers.begin(), model_.layers.end());
    const int num_types = static_cast<int>(model_.types.size());
    if (*used.begin() < 0 || *used.rbegin() >= num_types)
      fail("layers", "a layer's type does not exist", "use the index of a type");
    std::set<std::string> names;
    for (int i = 0; i < num_types; ++i) {
      const std::string& name = model_.types[static_cast<std::size_t>(i)].name;
      const std::string place = fmt::format("types[{}]", i);
      if (!names.insert(name).second)
        fail(place, fmt::format("two layer types are called '{}'", name), "rename one of them");
      if (!used.contains(i))
        fail(place, fmt::format("no layer is of type '{}'", name), "use the type, or remove it");
    }
  }

  void check_junction(int i) const {
    const LayerShape& from = shape(i);
    const LayerShape& to = shape(i + 1);
    const std::int64_t width = width_behind(from);
    const std::int64_t tokens = tokens_behind(from);
    // The first decoder of an encoder-decoder attends to what arrives and takes its own tokens.
    const bool enters_decoder = to.cross_tokens > 0 && from.cross_tokens == 0;
    const std::int64_t taken = enters_decoder ? to.cross_tokens : to.tokens;
    if (width != to.hidden || tokens != taken)
      fail(fmt::format("layers[{}]", i + 1),
           fmt::format("'{}' hands on {} tokens of width {}, '{}' takes {} of width {}",
                       model_.type_of(i).name, tokens, width, model_.type_of(i + 1).name, taken,
                       to.hidden),
           "make the neighbours' tokens and widths equal");
  }

  void check_head(const LayerShape& embedding, const LayerShape& head) const {
    const std::int64_t width = head.head_dense > 0 ? head.head_dense : head.hidden;
    if (head.tied && (head.vocab != embedding.vocab || width != embedding.hidden))
      fail("layers", "a tied head has another shape than the embedding's table",
           "make vocab and width equal, or set tied to false");
  }

  // Layer by layer in floating point: the sum must fit in 63 bits before anybody takes it.
  void check_size() const {
    double total = 0;
    for (int i = 0; i < model_.num_layers(); ++i)
      total += static_cast<double>(parameters(shape(i)));
    if (total >= std::ldexp(1.0, 60))
      fail("layers", fmt::format("the model has {:.3g} parameters", total),
           "check its widths, experts and layer counts");
  }

  const Model& model_;
  const std::string& source_;
};

}  // namespace

void verify(const Model& model, const std::string& source) {
  for (std::size_t i = 0; i < model.types.size(); ++i) TypeCheck(model.types[i], i, source).run();
  OrderCheck(model, source).run();
}

}  // namespace braid
