#pragma once
// Products in space and time (PrimePar): a square of q×q ranks multiplies in q steps, and between
// the steps blocks walk to neighbours while the present ones are at work. Rank (r, c) of a square
// holds activations between layers at [r, r+c]: a row's tokens (or samples), a diagonal's part of
// the hidden width.
//
// A product of x [m, n] and a matrix [n, k] has one home for each of its three blocks, whose
// indices are those of the first step in all three phases; every phase then turns one of them:
//
//             home (m, n, k)   forward: n + t     input gradient: k + t   weight gradient: m + t
//   inward    (r, r+c, c)      x ←, W ↑           dy ←, W ↙               x ↗, dy ↑
//   outward   (r, c, r+c)      x ←, W ↙           dy ←, W ↑               x ↑, dy ↗
//
// (← comes from column c+1, ↑ from row r+1, ↙ from row r-1 and column c+1, ↗ from row r+1 and
// column c-1). So an inward product takes [r, r+c] to [r, c], an outward one takes it back, and
// nothing is redistributed between them. Home blocks stay where they are, copies walk.
//
// On a rank outside a square these are the plain products of runtime/ops.

#include <ATen/core/Tensor.h>

#include "runtime/ops/linear.h"
#include "runtime/parallel/site.h"

namespace braid::parallel {

// Which of a sub-layer's two products: from the hidden width, or back to it.
enum class Direction { inward, outward };

struct Product {
  at::Tensor value;
  at::Tensor operand;  // what the weight gradient wants of the activation that went in
};
// y = x·Wᵀ + b; an undefined bias adds nothing.
Product linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
               Direction direction, const Site& site);
Product linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight, Direction direction,
                              const Site& site);
// gradient += dyᵀ·x, of the operands that the other two gave. Those of an outward x may be x
// itself.
void add_weight_gradient(const ops::Sum& gradient, const at::Tensor& dy, const at::Tensor& x,
                         Direction direction, const Site& site);

// Where rows share the tokens of a sample: keys and values of all rows, in the order of positions,
// and a row's own part of the sum of their gradients. [tokens, samples, heads, head_dim], as they
// are otherwise.
struct KeysAndValues {
  at::Tensor k, v;
};
KeysAndValues gather_rows(const KeysAndValues& own, const Site& site);
KeysAndValues scatter_rows(const KeysAndValues& gradients, const Site& site);

}  // namespace braid::parallel
