#include "runtime/parallel/streams.h"

#include <ATen/ops/cat.h>

#include <functional>
#include <numeric>

namespace braid::parallel {

namespace {

std::int64_t elements(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

at::Tensor packed(const Streams& streams) {
  if (!streams.side.defined()) return streams.x.contiguous();
  return at::cat({streams.x.reshape({-1}), streams.side.reshape({-1})});
}

Streams unpacked(const at::Tensor& message, const StreamShapes& shapes) {
  if (shapes.side.empty()) return {message, {}};
  const std::int64_t first = elements(shapes.x);
  return {message.narrow(0, 0, first).view(shapes.x).clone(),
          message.narrow(0, first, elements(shapes.side)).view(shapes.side).clone()};
}

std::vector<std::int64_t> message_shape(const StreamShapes& shapes) {
  if (shapes.side.empty()) return shapes.x;
  return {elements(shapes.x) + elements(shapes.side)};
}

}  // namespace braid::parallel
