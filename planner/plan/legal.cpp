#include "planner/plan/legal.h"

#include <fmt/core.h>

#include <numeric>
#include <vector>

#include "planner/core/text.h"

namespace braid {

namespace {

// Every rule returns whether it holds. A size of zero is not there (imported models have no heads)
// and imposes nothing.

bool tp_is_power_of_two(const Strategy& s) { return is_power_of_two(s.tp); }
bool cp_is_power_of_two(const Strategy& s) { return is_power_of_two(s.cp); }

bool dp_divides(std::int64_t micro_batch, const Strategy& s) {
  return s.dp >= 1 && micro_batch % s.dp == 0;
}

bool tp_divides_heads(const LayerShape& layer, const Strategy& s) {
  return layer.heads % s.tp == 0;
}

// Megatron replicates a key-value head over several ranks where there are fewer heads than ranks;
// Ulysses exchanges whole heads and cannot.
bool tp_fits_kv_heads(const LayerShape& layer, const Strategy& s) {
  if (layer.kv_heads % s.tp == 0) return true;
  return s.tp_kind == TensorKind::megatron && s.tp % layer.kv_heads == 0;
}

// Vocabulary rows are padded instead, as real vocabularies have no factors of two. A block without
// heads comes from a foreign profile: its width is fitted to measured bytes and means no matrix.
bool tp_divides_width(const LayerShape& layer, const Strategy& s) {
  const int ways = s.tensor_split();
  if (layer.merge_outputs % ways != 0) return false;
  return layer.heads == 0 || (layer.ffn % ways == 0 && layer.shared_ffn % ways == 0);
}

// Between layers each device holds its slice of the tokens, under either kind of tensor
// parallelism.
bool split_divides_tokens(const LayerShape& layer, const Strategy& s) {
  const std::int64_t ways = std::int64_t{s.cp} * s.tp;
  return layer.tokens % ways == 0 && tokens_behind(layer) % ways == 0 &&
         layer.cross_tokens % ways == 0 && layer.carried_tokens % ways == 0;
}

// Each rank of a causal ring takes one early and one late block, so that all work equally long.
bool ring_halves_tokens(const LayerShape& layer, const Strategy& s) {
  if (s.cp == 1 || layer.attention != AttentionKind::causal) return true;
  return layer.tokens % (std::int64_t{2} * s.cp) == 0;
}

// A ring passes keys by all queries of a sequence. Windows of an image see none but their own, and
// what looks at all of an image at once has no ring.
bool is_of_image(const LayerShape& layer) {
  return layer.attention == AttentionKind::window || layer.kind == LayerKind::merge ||
         ((layer.pooled || layer.patch_inputs > 0) && !layer.class_token);
}
const char* what_sees_images(LayerKind kind) {
  switch (kind) {
    case LayerKind::embedding:
      return "makes the patches of an image";
    case LayerKind::block:
      return "attends within windows";
    case LayerKind::merge:
      return "merges patches";
    case LayerKind::head:
      return "takes the mean of all tokens";
  }
  internal_failure("unknown layer kind", std::source_location::current());
}
bool cp_has_sequence(const LayerShape& layer, const Strategy& s) {
  return s.cp == 1 || !is_of_image(layer);
}

bool is_square(const Strategy& s) { return s.tp_kind == TensorKind::spatial_temporal; }

bool square_has_its_kind(const Strategy& s) {
  return is_square(s) || (s.square == 1 && s.variant == SquareVariant::plus_minus);
}
bool square_has_a_side(const Strategy& s) { return s.square == 2 || s.square == 4; }
bool square_divides_tp(const Strategy& s) { return s.tp % (s.square * s.square) == 0; }

// Tables, logits and routed tokens are not cut along the hidden width.
bool square_has_dense_block(const LayerShape& layer) {
  return layer.kind == LayerKind::block && layer.attention != AttentionKind::none &&
         layer.heads > 0 && layer.ffn > 0 && layer.experts == 0 && layer.cross_tokens == 0 &&
         layer.carried_tokens == 0 && layer.position_bias == 0;
}

// A device's columns of q, k and v are whole heads, and it has all keys of its queries.
bool square_divides_heads(const LayerShape& layer, const Strategy& s) {
  return layer.heads % s.tensor_split() == 0 && layer.kv_heads % s.tensor_split() == 0;
}
bool square_divides_width(const LayerShape& layer, const Strategy& s) {
  return layer.hidden % s.square == 0 && layer.ffn % s.tensor_split() == 0;
}

// Rows that share the tokens take an early and a late block each, so that all work equally long.
std::int64_t square_token_blocks(const LayerShape& layer, const Strategy& s,
                                 std::int64_t micro_batch) {
  const std::int64_t halves = layer.attention == AttentionKind::causal ? 2 : 1;
  const std::int64_t rows = rows_share_samples(s, micro_batch) ? 1 : halves * s.square;
  return std::int64_t{s.cp} * s.outer() * rows;
}
bool square_divides_tokens(const LayerShape& layer, const Strategy& s, std::int64_t micro_batch) {
  return layer.tokens % square_token_blocks(layer, s, micro_batch) == 0;
}

bool paper_is_one_square(const Strategy& s) {
  return s.variant != SquareVariant::paper || s.outer() == 1;
}

// The rules of a square, in the order in which each relies on those before it.
std::optional<StrategyFault> square_fault(const LayerShape& layer, const Strategy& s,
                                          std::int64_t micro_batch) {
  if (!square_has_a_side(s)) return StrategyFault::square_side;
  if (!square_divides_tp(s)) return StrategyFault::square_divides_tp;
  if (!square_has_dense_block(layer)) return StrategyFault::square_needs_dense_block;
  if (!paper_is_one_square(s)) return StrategyFault::paper_is_one_square;
  if (!square_divides_heads(layer, s)) return StrategyFault::square_divides_heads;
  if (!square_divides_width(layer, s)) return StrategyFault::square_divides_width;
  if (!square_divides_tokens(layer, s, micro_batch)) return StrategyFault::square_divides_tokens;
  return std::nullopt;
}

// The rules of tensor parallelism that cuts one dim at a time.
std::optional<StrategyFault> tensor_fault(const LayerShape& layer, const Strategy& s) {
  if (!tp_divides_heads(layer, s)) return StrategyFault::tp_divides_heads;
  if (!tp_fits_kv_heads(layer, s)) return StrategyFault::tp_fits_kv_heads;
  if (!tp_divides_width(layer, s)) return StrategyFault::tp_divides_width;
  if (!split_divides_tokens(layer, s)) return StrategyFault::split_divides_tokens;
  return std::nullopt;
}

bool ep_has_experts(const LayerShape& layer, const Strategy& s) {
  return s.ep == 1 || layer.experts > 0;
}
bool ep_divides_experts(const LayerShape& layer, const Strategy& s) {
  return s.ep >= 1 && layer.experts % s.ep == 0;
}
bool ep_divides_dp(const Strategy& s) { return s.dp % s.ep == 0; }

bool zero_has_replicas(const Strategy& s) { return s.zero == Zero::none || s.replicas() > 1; }

// Embedding and head keep what they keep under every setting.
bool recompute_has_block(const LayerShape& layer, const Strategy& s) {
  return s.recompute == Recompute::none ||
         (layer.kind != LayerKind::embedding && layer.kind != LayerKind::head);
}

// "1, 2, 4": the degrees that satisfy a rule, when the field takes them.
template <class Rule>
std::string legal_degrees(Strategy s, int Strategy::*field, Rule holds) {
  constexpr int kMaxDegree = 1 << 14;  // as many as a layer may have heads
  std::vector<int> degrees;
  for (int degree = 1; degree <= kMaxDegree; degree *= 2) {
    s.*field = degree;
    if (holds(s)) degrees.push_back(degree);
  }
  return join(degrees, ", ");
}

std::string tp_choices(const LayerShape& layer, const Strategy& strategy) {
  return fmt::format("choose tp from {}",
                     legal_degrees(strategy, &Strategy::tp, [&](const Strategy& s) {
                       return tp_divides_heads(layer, s) && tp_fits_kv_heads(layer, s) &&
                              tp_divides_width(layer, s);
                     }));
}

std::string by_square(const Strategy& s) {
  return fmt::format("a square of {}×{} under tp={}", s.square, s.square, s.tp);
}

Mistake describe_tokens(const LayerShape& layer, const Strategy& strategy) {
  const std::int64_t cut =
      std::gcd(tokens_behind(layer), std::gcd(layer.cross_tokens, layer.carried_tokens));
  const std::string ways = legal_degrees(
      {}, &Strategy::tp, [&](const Strategy& s) { return split_divides_tokens(layer, s); });
  return {.what = fmt::format("tp·cp={} does not divide {} tokens",
                              std::int64_t{strategy.tp} * strategy.cp, cut),
          .where = strategy.cp > 1 ? "cp" : "tp",
          .fix = fmt::format("make tp·cp one of {}", ways)};
}

}  // namespace

std::optional<StrategyFault> strategy_fault(const LayerShape& layer, const Strategy& strategy,
                                            std::int64_t micro_batch) {
  const Strategy& s = strategy;
  // The degrees come first: the rules after them divide by them.
  if (!tp_is_power_of_two(s)) return StrategyFault::tp_power_of_two;
  if (!cp_is_power_of_two(s)) return StrategyFault::cp_power_of_two;
  if (!dp_divides(micro_batch, s)) return StrategyFault::dp_divides_micro_batch;
  if (!square_has_its_kind(s)) return StrategyFault::square_needs_its_kind;
  if (const auto fault =
          is_square(s) ? square_fault(layer, s, micro_batch) : tensor_fault(layer, s))
    return fault;
  if (!ring_halves_tokens(layer, s)) return StrategyFault::ring_halves_tokens;
  if (!cp_has_sequence(layer, s)) return StrategyFault::cp_needs_sequence;
  if (!ep_has_experts(layer, s)) return StrategyFault::ep_needs_experts;
  if (!ep_divides_experts(layer, s)) return StrategyFault::ep_divides_experts;
  if (!ep_divides_dp(s)) return StrategyFault::ep_divides_dp;
  if (!zero_has_replicas(s)) return StrategyFault::zero_needs_replicas;
  if (!recompute_has_block(layer, s)) return StrategyFault::recompute_needs_block;
  return std::nullopt;
}

Mistake describe(StrategyFault fault, const LayerShape& layer, const Strategy& strategy,
                 std::int64_t micro_batch) {
  const Strategy& s = strategy;
  switch (fault) {
    case StrategyFault::tp_power_of_two:
      return {.what = fmt::format("tp={} is not a power of two", s.tp),
              .where = "tp",
              .fix = "choose tp from 1, 2, 4, 8, …"};
    case StrategyFault::cp_power_of_two:
      return {.what = fmt::format("cp={} is not a power of two", s.cp),
              .where = "cp",
              .fix = "choose cp from 1, 2, 4, 8, …"};
    case StrategyFault::dp_divides_micro_batch:
      return {.what = fmt::format("dp={} does not divide the {} samples of a micro-batch", s.dp,
                                  micro_batch),
              .where = "dp",
              .fix = "choose a dp that divides them, or fewer micro-batches"};
    case StrategyFault::tp_divides_heads:
      return {
          .what = fmt::format("tp={} does not divide the {} attention heads", s.tp, layer.heads),
          .where = "tp",
          .fix = tp_choices(layer, s)};
    case StrategyFault::tp_fits_kv_heads:
      return {.what = fmt::format("tp={} ({}) does not fit the {} key-value heads", s.tp,
                                  name_of(s.tp_kind), layer.kv_heads),
              .where = "tp",
              .fix = tp_choices(layer, s)};
    case StrategyFault::tp_divides_width:
      return {
          .what = fmt::format("tp={} does not divide the layer's width of {}", s.tp,
                              std::gcd(std::gcd(layer.ffn, layer.shared_ffn), layer.merge_outputs)),
          .where = "tp",
          .fix = tp_choices(layer, s)};
    case StrategyFault::split_divides_tokens:
      return describe_tokens(layer, s);
    case StrategyFault::ring_halves_tokens:
      return {.what = fmt::format("a causal ring of cp={} needs {} equal blocks of {} tokens", s.cp,
                                  std::int64_t{2} * s.cp, layer.tokens),
              .where = "cp",
              .fix = "halve cp"};
    case StrategyFault::cp_needs_sequence:
      return {.what = fmt::format("cp={} on a layer that {}", s.cp, what_sees_images(layer.kind)),
              .where = "cp",
              .fix = "set cp to 1: tp cuts an image's tokens too"};
    case StrategyFault::ep_needs_experts:
      return {.what = fmt::format("ep={} on a layer without experts", s.ep),
              .where = "ep",
              .fix = "set ep to 1"};
    case StrategyFault::ep_divides_experts:
      return {.what = fmt::format("ep={} does not divide the {} experts", s.ep, layer.experts),
              .where = "ep",
              .fix = "choose an ep that divides experts and dp"};
    case StrategyFault::ep_divides_dp:
      return {.what = fmt::format("ep={} does not divide dp={}", s.ep, s.dp),
              .where = "ep",
              .fix = "choose an ep that divides experts and dp"};
    case StrategyFault::zero_needs_replicas:
      return {.what = fmt::format("zero={} where nothing is replicated", static_cast<int>(s.zero)),
              .where = "zero",
              .fix = "set zero to 0, or raise dp"};
    case StrategyFault::recompute_needs_block:
      return {.what = fmt::format("{} recomputation on a layer of kind '{}'", name_of(s.recompute),
                                  name_of(layer.kind)),
              .where = "recompute",
              .fix = "set recompute to \"none\": there is nothing to win"};
    case StrategyFault::square_needs_its_kind:
      return {.what = fmt::format("square={} under tp_kind '{}'", s.square, name_of(s.tp_kind)),
              .where = "square",
              .fix = "set square to 1, or tp_kind to \"spatial_temporal\""};
    case StrategyFault::square_side:
      return {.what = fmt::format("a square of side {}", s.square),
              .where = "square",
              .fix = "set square to 2 or 4"};
    case StrategyFault::square_divides_tp:
      return {.what = fmt::format("tp={} is no multiple of a square of {} devices", s.tp,
                                  s.square * s.square),
              .where = "tp",
              .fix = fmt::format("choose tp from {0}, {1}, {2}, …, or another square",
                                 s.square * s.square, 2 * s.square * s.square,
                                 4 * s.square * s.square)};
    case StrategyFault::square_needs_dense_block:
      return {.what = fmt::format("spatial_temporal on a layer of kind '{}'{}", name_of(layer.kind),
                                  layer.kind == LayerKind::block
                                      ? " that is not one self-attention and a dense feed-forward"
                                      : ""),
              .where = "tp_kind",
              .fix = "set tp_kind to \"megatron\" or \"ulysses\" there"};
    case StrategyFault::square_divides_heads:
      return {.what = fmt::format("{} needs the {} attention heads and {} key-value heads in {} "
                                  "equal parts",
                                  by_square(s), layer.heads, layer.kv_heads, s.tensor_split()),
              .where = "square",
              .fix = "choose a smaller tp or another tp_kind"};
    case StrategyFault::square_divides_width:
      return {
          .what = fmt::format("{} needs a hidden width of {} in {} equal parts and {} "
                              "feed-forward columns in {}",
                              by_square(s), layer.hidden, s.square, layer.ffn, s.tensor_split()),
          .where = "square",
          .fix = "choose a smaller tp or another tp_kind"};
    case StrategyFault::square_divides_tokens:
      return {.what = fmt::format("{} needs {} tokens in {} equal blocks{}", by_square(s),
                                  layer.tokens, square_token_blocks(layer, s, micro_batch),
                                  rows_share_samples(s, micro_batch)
                                      ? ""
                                      : ", as its rows share the tokens of every sample"),
              .where = s.cp > 1 ? "cp" : "square",
              .fix = fmt::format("halve cp, or give a replica a multiple of {} samples", s.square)};
    case StrategyFault::paper_is_one_square:
      return {
          .what = fmt::format("variant 'paper' with {} squares", s.outer()),
          .where = "variant",
          .fix = fmt::format("set tp to {}, or variant to \"plus_minus\"", s.square * s.square)};
  }
  internal_failure("a fault without words", std::source_location::current());
}

}  // namespace braid
