#pragma once
// What passes from layer to layer: one stream of tokens, and of an encoder-decoder a second one
// beside it. Past the encoder's blocks that is the decoder's embedded tokens, past the decoder's
// the encoder's output. Gradients come back in the same two.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace braid::parallel {

struct Streams {
  at::Tensor x;
  at::Tensor side;  // not there where a model has one stream
};

struct StreamShapes {
  std::vector<std::int64_t> x, side;  // no dims: not there
};

// Both as one message, and back: each in memory of its own, so that keeping one does not keep the
// other.
at::Tensor packed(const Streams& streams);
Streams unpacked(const at::Tensor& message, const StreamShapes& shapes);
// Elements of such a message, or the shape of the one stream.
std::vector<std::int64_t> message_shape(const StreamShapes& shapes);

}  // namespace braid::parallel
