#pragma once
// What one rank of a square multiplies, and what it passes on between the steps.

#include <array>

#include "planner/model/layer.h"
#include "planner/strategy/strategy.h"

namespace braid {

// One of a block's products on one rank: elements of its three blocks, and its part of the FLOPs of
// all matrices.
struct SquareProduct {
  double x = 0, matrix = 0, y = 0;
  double share = 0;
  bool outward = false;  // back to the hidden width
};

// q, k and v as one, attention's output, the feed-forward's first matrices as one, and its second.
// `samples` of one replica.
std::array<SquareProduct, 4> square_products(const LayerShape& block, const Strategy& strategy,
                                             double samples);

// Elements of the two blocks of the largest step that are on their way or stand by beside those at
// home: one pair, and another where a step's factors are neither home nor arriving.
double walking_elements(const std::array<SquareProduct, 4>& products, int side);

}  // namespace braid
