#include "runtime/checkpoint/snapshot.h"

#include "runtime/ops/split_master.h"

namespace braid::checkpoint {

at::Tensor SavedRange::master() const {
  return low_bits.defined() ? ops::join_master(weights, low_bits) : weights;
}

namespace {

// The elements of a range of what a rank stores of its owned elements.
at::Tensor part_of(const at::Tensor& owned, const SavedRange& saved) {
  return owned.narrow(0, saved.range.begin - saved.buffer->owned_begin(), saved.range.size());
}

}  // namespace

Snapshot::Snapshot(models::RankModel& model, c10::Device device) : copy_(device) {
  const auto memory = [&](const at::Tensor& like, std::int64_t elements) {
    if (!like.defined()) return at::Tensor();
    bytes_ += elements * static_cast<std::int64_t>(like.element_size());
    return ops::host_memory(elements, like.scalar_type(), device);
  };
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    parallel::Parameters& parameters = model.layers[i]->parameters();
    for (const parallel::FlatBuffer* buffer : parameters.buffers())
      for (const parallel::Segment& range : buffer->saved_elements())
        ranges_.push_back({.layer = model.indices[i],
                           .parameters = &parameters,
                           .buffer = buffer,
                           .range = range,
                           .weights = memory(buffer->owned_weights(), range.size()),
                           .low_bits = memory(buffer->low_bits(), range.size()),
                           .first_moment = memory(buffer->first_moment(), range.size()),
                           .second_moment = memory(buffer->second_moment(), range.size())});
  }
}

void Snapshot::start() {
  std::vector<ops::HostCopy::Pair> pairs;
  for (const SavedRange& saved : ranges_) {
    pairs.push_back({part_of(saved.buffer->owned_weights(), saved), saved.weights});
    if (saved.low_bits.defined())
      pairs.push_back({part_of(saved.buffer->low_bits(), saved), saved.low_bits});
    pairs.push_back({part_of(saved.buffer->first_moment(), saved), saved.first_moment});
    pairs.push_back({part_of(saved.buffer->second_moment(), saved), saved.second_moment});
  }
  copy_.start(std::move(pairs));
}

}  // namespace braid::checkpoint
