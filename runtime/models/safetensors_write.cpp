#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "runtime/models/safetensors.h"

namespace braid::models {

namespace {

// A file that appears under its name only once all of it is on the disk.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& file)
      : target_(file), temporary_(file.string() + ".tmp") {
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail(errno);
  }
  ~AtomicFile() {
    if (descriptor_ < 0) return;
    close(descriptor_);
    unlink(temporary_.c_str());
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    const auto* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(descriptor_, next, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(errno);
      next += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }

  void commit() {
    if (fsync(descriptor_) != 0) fail(errno);
    if (close(std::exchange(descriptor_, -1)) != 0) fail_and_remove(errno);
    if (rename(temporary_.c_str(), target_.c_str()) != 0) fail_and_remove(errno);
    sync_folder();
  }

 private:
  [[noreturn]] void fail(int reason) const {
    throw Error({.what = fmt::format("cannot write the file: {}", std::strerror(reason)),
                 .where = target_.string(),
                 .fix = "check that the folder exists, is writable and has room"});
  }
  [[noreturn]] void fail_and_remove(int reason) const {
    unlink(temporary_.c_str());
    fail(reason);
  }

  // Makes the new name itself last. Some file systems cannot; the file is whole either way.
  void sync_folder() const {
    const std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : ".";
    const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    fsync(descriptor);
    close(descriptor);
  }

  std::filesystem::path target_, temporary_;
  int descriptor_ = -1;
};

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
  AtomicFile out(file);
  out.write(&length, sizeof(length));
  out.write(header.data(), header.size());
  for (const NamedTensor* tensor : order) out.write(tensor->tensor.data, tensor->tensor.bytes);
  out.commit();
}

}  // namespace braid::models
