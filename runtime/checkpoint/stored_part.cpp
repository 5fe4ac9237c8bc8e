#include "runtime/checkpoint/stored_part.h"

#include <algorithm>

#include "runtime/checkpoint/huggingface_names.h"

namespace braid::checkpoint {

namespace {

using parallel::LocalShape;
using parallel::ParameterSpec;

// A rectangle of a parameter as the runtime shapes it.
struct ParameterPart {
  Box box;                            // in the unsharded parameter
  std::int64_t begin = 0;             // in the flat buffer
  std::vector<std::int64_t> strides;  // in the flat buffer
};

// Elements `range`, counted from the parameter's first one, of what a rank holds of it.
std::vector<ParameterPart> parts_of_parameter(const ParameterSpec& spec, const LocalShape& local,
                                              parallel::Segment range, std::int64_t begin) {
  const std::vector<std::int64_t> strides = strides_of(local.shape);
  Box real = whole_box(local.shape);  // without padding
  const auto cut = static_cast<std::size_t>(spec.cut_dim);
  real.sizes[cut] = local.real;
  std::vector<ParameterPart> parts;
  for (const Box& piece : boxes_of_range(local.shape, range.begin, range.end)) {
    std::optional<Box> box = intersection(piece, real);
    if (!box) continue;
    ParameterPart part{.box = *box, .begin = begin, .strides = strides};
    for (std::size_t dim = 0; dim < strides.size(); ++dim)
      part.begin += box->offsets[dim] * strides[dim];
    part.box.offsets[cut] += local.begin;
    if (strides.size() == 2) part.box.offsets[1 - cut] += local.across;
    parts.push_back(std::move(part));
  }
  return parts;
}

// A parameter whose elements are stored in the same order under another shape.
void add_folded(const ParameterPart& part, const ParameterSpec& spec, const StoredPart& like,
                std::vector<StoredPart>& stored) {
  const std::vector<std::int64_t> strides = strides_of(spec.shape);
  // Rows of the rectangle that follow each other without a gap are one range.
  const std::size_t dims = spec.shape.size();
  const bool full_rows = dims == 1 || part.box.sizes[1] == spec.shape[1];
  const std::int64_t rows = full_rows ? 1 : part.box.sizes[0];
  const std::int64_t length = elements(part.box) / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t begin = row * strides[0];
    for (std::size_t dim = 0; dim < dims; ++dim) begin += part.box.offsets[dim] * strides[dim];
    const std::int64_t flat = part.begin + row * part.strides[0];
    const std::vector<std::int64_t> stored_strides = strides_of(like.shape);
    for (const Box& box : boxes_of_range(like.shape, begin, begin + length)) {
      StoredPart next = like;
      next.box = box;
      next.strides = stored_strides;
      std::int64_t first = 0;
      for (std::size_t dim = 0; dim < box.offsets.size(); ++dim)
        first += box.offsets[dim] * stored_strides[dim];
      next.begin = flat + first - begin;
      stored.push_back(std::move(next));
    }
  }
}

// Rows of q, k or v that lie head by head between those of the other two (BLOOM).
void add_by_head(const ParameterPart& part, const ParameterSpec& spec, const Source& source,
                 std::int64_t heads, const StoredPart& like, std::vector<StoredPart>& stored) {
  const std::int64_t head_rows = spec.shape[0] / heads;
  const std::int64_t end = part.box.offsets[0] + part.box.sizes[0];
  for (std::int64_t row = part.box.offsets[0]; row < end;) {
    const std::int64_t head = row / head_rows;
    const std::int64_t next_row = std::min(end, (head + 1) * head_rows);
    StoredPart next = like;
    next.box = part.box;
    next.box.offsets[0] = (head * source.parts + source.part) * head_rows + row % head_rows;
    next.box.sizes[0] = next_row - row;
    next.begin = part.begin + (row - part.box.offsets[0]) * part.strides[0];
    next.strides = part.strides;
    stored.push_back(std::move(next));
    row = next_row;
  }
}

void add_stored(const Model& model, int layer, const ParameterSpec& spec, const ParameterPart& part,
                std::vector<StoredPart>& stored) {
  const Source source = source_of(model, layer, spec.name);
  const LayerShape& shape = model.type_of(layer).shape;
  StoredPart one{.tensor = source.tensor,
                 .shape = published_shape(source, model, layer, spec),
                 .box = {},
                 .begin = part.begin,
                 .strides = part.strides};
  if (source.folded) return add_folded(part, spec, one, stored);
  if (source.by_head) return add_by_head(part, spec, source, shape.heads, one, stored);
  one.box = part.box;
  one.box.offsets[0] += first_row(source, shape, spec.shape[0]);
  if (source.transposed) {
    std::ranges::reverse(one.box.offsets);
    std::ranges::reverse(one.box.sizes);
    std::ranges::reverse(one.strides);
  }
  stored.push_back(std::move(one));
}

}  // namespace

std::vector<StoredPart> stored_parts(const Model& model, int layer,
                                     const parallel::Parameters& parameters,
                                     const parallel::FlatBuffer& buffer, parallel::Segment range) {
  std::vector<StoredPart> stored;
  const auto count = static_cast<parallel::Parameters::Id>(parameters.specs().size());
  for (parallel::Parameters::Id id = 0; id < count; ++id) {
    const parallel::Parameters::Place place = parameters.place(id);
    if (place.buffer != &buffer) continue;
    const parallel::Segment inside{std::max(range.begin, place.begin) - place.begin,
                                   std::min(range.end, place.end) - place.begin};
    if (inside.begin >= inside.end) continue;
    const ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(id)];
    for (const ParameterPart& part :
         parts_of_parameter(spec, parameters.local(id), inside, place.begin))
      add_stored(model, layer, spec, part, stored);
  }
  return stored;
}

}  // namespace braid::checkpoint
