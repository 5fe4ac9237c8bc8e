#pragma once
// Which rectangles of published tensors the elements of a rank's flat buffers are. Saving and
// loading both follow this list, so that a checkpoint fits any plan.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/model/model.h"
#include "runtime/checkpoint/box.h"
#include "runtime/parallel/layout.h"
#include "runtime/parallel/parameters.h"

namespace braid::checkpoint {

// A rectangle of a tensor under its Hugging Face name, and where its elements lie in a flat buffer.
struct StoredPart {
  std::string tensor;
  std::vector<std::int64_t> shape;    // of the unsharded tensor
  Box box;                            // in that shape
  std::int64_t begin = 0;             // of the first element, counted in the flat buffer
  std::vector<std::int64_t> strides;  // in the flat buffer, in elements, by dim of the box
};

// Of elements `range` of one of the layer's flat buffers. Padding belongs to no part.
std::vector<StoredPart> stored_parts(const Model& model, int layer,
                                     const parallel::Parameters& parameters,
                                     const parallel::FlatBuffer& buffer, parallel::Segment range);

}  // namespace braid::checkpoint
