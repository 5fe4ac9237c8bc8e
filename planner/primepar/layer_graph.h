#pragma once
// A Transformer layer as PrimePar sees it: thirteen operators in a chain, with the residual stream
// and attention's values on edges that skip ahead.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/model/model.h"
#include "planner/primepar/partition.h"

namespace braid {

// What is partitioned: one block and how it is run.
struct PrimeparTask {
  LayerShape block;
  int layers = 1;               // equal blocks in a row
  std::int64_t batch = 1;       // samples of a micro-batch, over all devices
  std::int64_t accumulate = 1;  // micro-batches that share one reduction of gradients
  Precision precision = Precision::bf16;
};

// What the layer graph does not know of a block: experts, cross-attention, attention windows.
std::optional<std::string> graph_fault(const LayerShape& block);

// The model's blocks. Throws Error where they differ, or hold what the layer graph does not
// know.
PrimeparTask primepar_task(const Model& model, const std::string& source);

enum class OperatorKind { add, norm, linear, scores, softmax, values, activation };
Letters letters_of(OperatorKind kind);

struct Operator {
  std::string name;
  OperatorKind kind = OperatorKind::add;
  std::int64_t inputs = 0;   // width that comes in, N of a linear operator
  std::int64_t outputs = 0;  // width that goes out, K
};

// A tensor of an operator at an edge: what a layout is asked for.
enum class Port { input, output, query, key, value, score };

// One tensor that an edge carries forward, and its gradient back.
struct Flow {
  Port from = Port::output, to = Port::input;
  double elements = 0;
};

struct GraphEdge {
  int from = 0, to = 0;
  std::vector<Flow> flows;
};

struct LayerGraph {
  std::vector<Operator> operators;
  std::vector<GraphEdge> edges;
};
LayerGraph layer_graph(const PrimeparTask& task);

// Whether every slice is whole: samples, tokens, heads, columns.
bool divides(const Partition& partition, const Operator& op, const PrimeparTask& task);

}  // namespace braid
