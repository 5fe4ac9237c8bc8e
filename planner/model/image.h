#pragma once
// The images that an image model reads, told from its patches.

#include <cstdint>

#include "planner/model/model.h"

namespace braid {

// Square images of values 0 to 255.
struct ImageShape {
  std::int64_t channels = 0;
  std::int64_t side = 0;  // pixels
  std::int64_t values() const { return channels * side * side; }
};

// The square root where it is a whole number, else 0.
std::int64_t whole_root(std::int64_t square);

// Patches along one side of the image; 0 if they form no square.
std::int64_t patches_across(const Model& model);

// Three channels, or one. Throws an Error where the patches are not square.
ImageShape image_shape_of(const Model& model);

}  // namespace braid
