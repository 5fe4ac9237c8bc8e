#include <algorithm>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "runtime/checkpoint/safetensors.h"

namespace braid::checkpoint {

namespace {

std::int64_t bytes_of(const TensorSpec& tensor) {
  const SafetensorsType* type = find_safetensors_type(tensor.dtype);
  internal_check(type != nullptr, "a tensor to save has a dtype of the format");
  std::int64_t bytes = type->bytes;
  for (const std::int64_t size : tensor.shape) bytes *= size;
  return bytes;
}

std::vector<const NamedTensor*> in_file_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  order.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors) {
    const TensorSpec spec{tensor.name, tensor.tensor.dtype, tensor.tensor.shape};
    internal_check(std::cmp_equal(bytes_of(spec), tensor.tensor.bytes), "a tensor fills its shape");
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

std::string header_for(std::span<const TensorSpec> tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    internal_check(!header.contains(tensor.name), "every tensor has a name of its own");
    const std::int64_t end = offset + bytes_of(tensor);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  // Spaces up to a multiple of 8, so that the data behind is aligned for every dtype.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& file,
                                     std::span<const TensorSpec> tensors, const Metadata& metadata)
    : out_(file) {
  const std::string header = header_for(tensors, metadata);
  const std::uint64_t length = header.size();
  add(std::as_bytes(std::span(&length, 1)));
  add(std::as_bytes(std::span(header.data(), header.size())));
  expected_ = bytes();
  for (const TensorSpec& tensor : tensors) expected_ += bytes_of(tensor);
}

void SafetensorsWriter::add(std::span<const std::byte> bytes) {
  out_.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  hasher_.add(bytes);
}

void SafetensorsWriter::commit() {
  internal_check(bytes() == expected_, "a file of tensors is written to its end");
  out_.commit();
}

void write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                       const Metadata& metadata) {
  const std::vector<const NamedTensor*> order = in_file_order(tensors);
  std::vector<TensorSpec> specs;
  specs.reserve(order.size());
  for (const NamedTensor* tensor : order)
    specs.push_back({tensor->name, tensor->tensor.dtype, tensor->tensor.shape});
  SafetensorsWriter out(file, specs, metadata);
  for (const NamedTensor* tensor : order) out.add({tensor->tensor.data, tensor->tensor.bytes});
  out.commit();
}

}  // namespace braid::checkpoint
