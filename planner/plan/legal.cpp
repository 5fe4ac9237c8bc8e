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
  const std::int64_t handed_on = layer.kind == LayerKind::merge ? layer.tokens / 4 : layer.tokens;
  return layer.tokens % ways == 0 && handed_on % ways == 0 && layer.cross_tokens % ways == 0;
}

// Each rank of a causal ring takes one early and one late block, so that all work equally long.
bool ring_halves_tokens(const LayerShape& layer, const Strategy& s) {
  if (s.cp == 1 || layer.attention != AttentionKind::causal) return true;
  return layer.tokens % (std::int64_t{2} * s.cp) == 0;
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

Mistake describe_tokens(const LayerShape& layer, const Strategy& strategy) {
  const bool merge = layer.kind == LayerKind::merge;
  const std::int64_t cut = std::gcd(merge ? layer.tokens / 4 : layer.tokens, layer.cross_tokens);
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
  if (!tp_divides_heads(layer, s)) return StrategyFault::tp_divides_heads;
  if (!tp_fits_kv_heads(layer, s)) return StrategyFault::tp_fits_kv_heads;
  if (!tp_divides_width(layer, s)) return StrategyFault::tp_divides_width;
  if (!split_divides_tokens(layer, s)) return StrategyFault::split_divides_tokens;
  if (!ring_halves_tokens(layer, s)) return StrategyFault::ring_halves_tokens;
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
  }
  internal_failure("a fault without words", std::source_location::current());
}

}  // namespace braid
