#pragma once
// Between Braid's parameter names and those of published Hugging Face checkpoints.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/model/model.h"
#include "runtime/parallel/parameters.h"

namespace braid::checkpoint {

// Where a parameter lies in a checkpoint.
struct Source {
  std::string tensor;
  bool transposed = false;  // stored as [in, out]
  int part = 0, parts = 1;  // of the tensor's output rows, after transposing
  bool by_head = false;     // the parts alternate from head to head
  bool folded = false;      // the same values in another shape
  bool operator==(const Source&) const = default;
};

// Of parameter `name` of a layer ("attention.q.weight" of layer 1). Throws Error for a family
// whose names are not known here.
Source source_of(const Model& model, int layer, const std::string& name);

// Of the tensor that holds a parameter of this shape, among others or alone.
std::vector<std::int64_t> stored_shape(const Source& source, const LayerShape& layer,
                                       std::vector<std::int64_t> shape);
// The same in the published number of dims, of folded parameters too.
std::vector<std::int64_t> published_shape(const Source& source, const Model& model, int layer,
                                          const parallel::ParameterSpec& spec);
// The row of the tensor, after transposing, with which a parameter of `rows` rows begins.
std::int64_t first_row(const Source& source, const LayerShape& layer, std::int64_t rows);
// The view of such a tensor that is the parameter: its elements in their order, but by head of one
// dim more.
at::Tensor part_of(const at::Tensor& stored, const Source& source, const LayerShape& layer,
                   const std::vector<std::int64_t>& shape);

// Names under which files may have a tensor, the present one first.
std::vector<std::string> names_in_files(const std::string& tensor);
// The tensor of which this one is a copy, because the model ties them; empty: it is none.
std::optional<std::string> tied_to(const Model& model, const std::string& tensor);
// True for what published files hold besides weights that are trained: buffers that follow from the
// config, heads of other objectives, and the optimizer's states of a run's checkpoint.
bool is_dispensable(const std::string& tensor);

}  // namespace braid::checkpoint
