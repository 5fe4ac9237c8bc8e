#include <algorithm>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "runtime/checkpoint/safetensors.h"

namespace braid::checkpoint {

namespace {

std::vector<const NamedTensor*> in_file_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  order.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) {
    const SafetensorsType* type = find_safetensors_type(tensor.tensor.dtype);
    internal_check(type != nullptr, "a tensor to save has a dtype of the format");
    std::int64_t bytes = type->bytes;
    for (const std::int64_t size : tensor.tensor.shape) bytes *= size;
    internal_check(std::cmp_equal(bytes, tensor.tensor.bytes), "a tensor fills its shape");
    internal_check(tensor.name != "__metadata__", "no tensor bears the metadata's name");
    order.push_back(&tensor);
  }
  std::ranges::sort(order, [](const NamedTensor* a, const NamedTensor* b) {
    const SafetensorsType* type_a = find_safetensors_type(a->tensor.dtype);
    const SafetensorsType* type_b = find_safetensors_type(b->tensor.dtype);
    return type_a != type_b ? type_a > type_b : a->name < b->name;
  });
  return order;
}

std::string header_for(std::span<const NamedTensor* const> order, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t offset = 0;
  for (const NamedTensor* tensor : order) {
    internal_check(!header.contains(tensor->name), "every tensor has a name of its own");
    const TensorView& view = tensor->tensor;
    header[tensor->name] = {{"dtype", view.dtype},
                            {"shape", view.shape},
                            {"data_offsets", {offset, offset + view.bytes}}};
    offset += view.bytes;
  }
  std::string text = header.dump();
  // Spaces up to a multiple of 8, so that the data behind is aligned for every dtype.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                       const Metadata& metadata) {
  const std::vector<const NamedTensor*> order = in_file_order(tensors);
  const std::string header = header_for(order, metadata);
  const std::uint64_t length = header.size();
  OutputFile out(file);
  out.write({reinterpret_cast<const char*>(&length), sizeof(length)});
  out.write(header);
  for (const NamedTensor* tensor : order)
    out.write({reinterpret_cast<const char*>(tensor->tensor.data), tensor->tensor.bytes});
  out.commit();
}

}  // namespace braid::checkpoint
