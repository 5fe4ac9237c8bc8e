#include "planner/primepar/layer_graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "planner/core/error.h"

namespace braid {

namespace {

[[noreturn]] void refuse(std::string what, const std::string& source) {
  throw Error(
      {.what = std::move(what),
       .where = source,
       .fix = "PrimePar plans stacks of equal decoder or encoder blocks; use 'braid plan'"});
}

bool cut(std::int64_t whole, int levels) { return whole % (std::int64_t{1} << levels) == 0; }

}  // namespace

std::optional<std::string> graph_fault(const LayerShape& block) {
  if (block.attention == AttentionKind::none || block.ffn == 0)
    return "a block lacks attention or its feed-forward";
  if (block.experts > 0) return "a mixture of experts has no place in the layer graph";
  if (block.cross_tokens > 0) return "cross-attention has no place in the layer graph";
  if (block.attention == AttentionKind::window || block.window > 0)
    return "attention windows have no place in the layer graph";
  return std::nullopt;
}

PrimeparTask primepar_task(const Model& model, const std::string& source) {
  PrimeparTask task;
  task.layers = 0;
  std::optional<int> type;
  for (const int layer : model.layers) {
    const LayerShape& shape = model.types[static_cast<std::size_t>(layer)].shape;
    if (shape.kind == LayerKind::merge) refuse("the model merges patches between blocks", source);
    if (shape.kind != LayerKind::block) continue;
    if (type && *type != layer) refuse("the model's blocks differ", source);
    type = layer;
    task.block = shape;
    ++task.layers;
  }
  if (!type) refuse("the model has no block", source);
  if (auto fault = graph_fault(task.block)) refuse(std::move(*fault), source);
  return task;
}

Letters letters_of(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::linear:
      return Letters::linear;
    case OperatorKind::add:
    case OperatorKind::norm:
    case OperatorKind::activation:
      return Letters::elementwise;
    case OperatorKind::scores:
    case OperatorKind::softmax:
    case OperatorKind::values:
      return Letters::attention;
  }
  return Letters::linear;
}

LayerGraph layer_graph(const PrimeparTask& task) {
  const LayerShape& b = task.block;
  const std::int64_t h = b.hidden;
  const std::int64_t q = b.heads * b.head_dim;
  const std::int64_t kv = b.kv_heads * b.head_dim;
  const std::int64_t up = (is_gated(b.activation) ? 2 : 1) * b.ffn;  // gate and up are one matrix
  using enum OperatorKind;
  LayerGraph graph;
  graph.operators = {
      {"add", add, h, h},
      {"norm", norm, h, h},
      {"qkv", linear, h, q + 2 * kv},
      {"q·kᵀ", scores, q, q},
      {"softmax", softmax, q, q},
      {"·v", values, q, q},
      {"proj", linear, q, h},
      {"add", add, h, h},
      {"norm", norm, h, h},
      {"fc1", linear, h, up},
      {"act", activation, up, b.ffn},
      {"fc2", linear, b.ffn, h},
      {"add", add, h, h},
  };
  const auto tokens = static_cast<double>(task.batch * b.tokens);
  const auto wide = [&](std::int64_t width) { return tokens * static_cast<double>(width); };
  const double square = tokens * static_cast<double>(b.heads * b.tokens);
  const auto plain = [&](int from, int to, std::int64_t width) {
    graph.edges.push_back({from, to, {{Port::output, Port::input, wide(width)}}});
  };
  plain(0, 1, h);
  plain(1, 2, h);
  graph.edges.push_back(
      {2, 3, {{Port::output, Port::query, wide(q)}, {Port::output, Port::key, wide(kv)}}});
  graph.edges.push_back({3, 4, {{Port::score, Port::score, square}}});
  graph.edges.push_back({4, 5, {{Port::score, Port::score, square}}});
  plain(5, 6, q);
  plain(6, 7, h);
  plain(7, 8, h);
  plain(8, 9, h);
  plain(9, 10, up);
  plain(10, 11, b.ffn);
  plain(11, 12, h);
  graph.edges.push_back({2, 5, {{Port::output, Port::value, wide(kv)}}});
  plain(0, 7, h);
  plain(7, 12, h);
  return graph;
}

bool divides(const Partition& partition, const Operator& op, const PrimeparTask& task) {
  const auto fits = [&](Dim dim, std::int64_t whole) { return cut(whole, partition.levels(dim)); };
  const std::int64_t tokens = task.block.tokens;
  if (!fits(Dim::batch, task.batch) || !fits(Dim::rows, tokens)) return false;
  switch (letters_of(op.kind)) {
    case Letters::linear:
      return fits(Dim::inner, op.inputs) && fits(Dim::columns, op.outputs);
    case Letters::elementwise:
      return fits(Dim::columns, std::min(op.inputs, op.outputs));
    case Letters::attention:
      return fits(Dim::heads, task.block.heads) && fits(Dim::keys, tokens);
  }
  return false;
}

}  // namespace braid
