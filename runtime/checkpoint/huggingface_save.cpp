#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <map>

#include "planner/core/error.h"
#include "runtime/checkpoint/huggingface.h"

namespace braid::checkpoint {

namespace {

struct Stored {
  at::Tensor tensor;
  std::int64_t filled = 0;  // elements
};

}  // namespace

void save_huggingface(const std::filesystem::path& file, const Model& model,
                      std::span<const WholeParameter> parameters) {
  std::map<std::string, Stored> stored;
  for (const WholeParameter& parameter : parameters) {
    const Source source = source_of(model, parameter.layer, parameter.spec.name);
    if (source.folded)
      throw Error({.what = fmt::format("the published shape of '{}' is not known", source.tensor),
                   .where = fmt::format("saving model '{}' to {}", model.name, file.string()),
                   .fix = "save a model of text; images' are only read"});
    const LayerShape& layer = model.type_of(parameter.layer).shape;
    const std::vector<std::int64_t>& shape = parameter.spec.shape;
    Stored& whole = stored[source.tensor];
    if (!whole.tensor.defined())
      whole.tensor =
          at::empty(stored_shape(source, layer, shape), parameter.value.options().device(at::kCPU));
    const at::Tensor part = part_of(whole.tensor, source, layer, shape);
    part.copy_(parameter.value.reshape(part.sizes()));
    whole.filled += part.numel();
  }
  std::vector<NamedTensor> tensors;
  for (const auto& [name, whole] : stored) {
    internal_check(whole.filled == whole.tensor.numel(), "every part of a tensor is saved");
    tensors.push_back({name,
                       {.dtype = dtype_name(whole.tensor.scalar_type()),
                        .shape = whole.tensor.sizes().vec(),
                        .data = static_cast<const std::byte*>(whole.tensor.const_data_ptr()),
                        .bytes = whole.tensor.nbytes()}});
  }
  write_safetensors(file, tensors, {{"format", "pt"}});
}

}  // namespace braid::checkpoint
