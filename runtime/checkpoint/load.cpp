#include "runtime/checkpoint/load.h"

#include <ATen/ops/zeros.h>

#include <string>
#include <utility>

#include "runtime/checkpoint/shard.h"
#include "runtime/checkpoint/stored_part.h"

namespace braid::checkpoint {

namespace {

using parallel::Segment;

// One state of the elements `range` of a buffer, flat and on the host; padding is zero.
at::Tensor read_range(const Model& model, int layer, const parallel::Parameters& parameters,
                      const parallel::FlatBuffer& buffer, Segment range, const std::string& state,
                      const TensorFiles& files) {
  at::Tensor flat = at::zeros(
      {range.size()}, at::TensorOptions(buffer.first_moment().scalar_type()).device(at::kCPU));
  for (const StoredPart& part : stored_parts(model, layer, parameters, buffer, range))
    files.read(state + part.tensor, part.box,
               flat.as_strided(part.box.sizes, part.strides, part.begin - range.begin));
  return flat;
}

}  // namespace

void load_state(models::RankModel& rank_model, const Model& model, const TensorFiles& files) {
  for (std::size_t i = 0; i < rank_model.layers.size(); ++i) {
    parallel::Parameters& parameters = rank_model.layers[i]->parameters();
    for (parallel::FlatBuffer* buffer : parameters.buffers()) {
      const auto read = [&](Segment range, const char* state) {
        return read_range(model, rank_model.indices[i], parameters, *buffer, range, state, files);
      };
      const Segment weights = buffer->stored_weights();
      buffer->initialise(read(weights, ""), weights.begin);
      const Segment owned = buffer->owned_elements();
      for (const auto& [moment, state] : {std::pair(buffer->first_moment(), kFirstMoment),
                                          std::pair(buffer->second_moment(), kSecondMoment)})
        moment.narrow(0, owned.begin - buffer->owned_begin(), owned.size())
            .copy_(read(owned, state));
    }
  }
  files.expect_whole();
}

}  // namespace braid::checkpoint
