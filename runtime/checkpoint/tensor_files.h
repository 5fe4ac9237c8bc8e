#pragma once
// Safetensors files as one set of tensors. A tensor lies in one file, or in rectangles in several:
// files of PyTorch's distributed checkpoints say in their metadata where each begins.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/box.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/parallel/layout.h"

namespace braid::checkpoint {

// The key of a file's metadata under which PyTorch keeps the rectangles' offsets, as JSON:
// {"tensor": {"saved_offsets": [0, 128]}}.
inline constexpr const char* kShardingInfo = "DCP_SHARDING_INFO";

// A file whose chunks are held against their hashes before they are used, each once.
class CheckedFile {
 public:
  // `stored`: what the checkpoint says of it; null: there are no hashes.
  CheckedFile(const std::filesystem::path& file, const StoredFile* stored);

  const SafetensorsFile& tensors() const { return file_; }
  // Throws an Error that names tensor, file and chunk, where a chunk of the view's bytes
  // [begin, end) is not what was written.
  void expect_sound(const std::string& tensor, const TensorView& view, std::int64_t begin,
                    std::int64_t end) const;
  // The same of all chunks that have not been looked at.
  void expect_all_sound() const;

 private:
  void check(std::int64_t chunk, const std::string& tensor) const;
  std::string tensor_at(std::int64_t byte) const;

  SafetensorsFile file_;
  std::optional<StoredFile> stored_;
  mutable std::mutex mutex_;
  mutable std::vector<bool> checked_;  // by chunk
};

class TensorFiles {
 public:
  // A file, or a folder of *.safetensors. Of a folder with a checkpoint.json the files that it
  // names alone count, and all that is read is held against its hashes. Throws an Error where there
  // is no file, or two give the same elements.
  explicit TensorFiles(const std::filesystem::path& file_or_folder);

  struct Rectangle {
    const CheckedFile* file = nullptr;
    const TensorView* view = nullptr;
    Box box;
  };
  struct Entry {
    std::string dtype;
    std::vector<std::int64_t> shape;  // of the unsharded tensor
    std::vector<Rectangle> rectangles;
  };
  // Null: there is none of that name.
  const Entry* find(const std::string& name) const;
  std::vector<std::string> names() const;  // ascending
  const std::filesystem::path& path() const { return path_; }
  const std::optional<Manifest>& manifest() const {
    return manifest_;
  }  // empty: no checkpoint.json
  const std::vector<std::unique_ptr<CheckedFile>>& files() const { return files_; }

  // Fills `to`, of the box's sizes, from a tensor of the set. Throws an Error that names the tensor
  // where an element is missing, or its dtype is none that is trained.
  void read(const std::string& name, const Box& box, const at::Tensor& to) const;
  // The whole tensor: a view of the mapped file where that holds all of it and is aligned.
  at::Tensor read(const std::string& name) const;

  // As of MappedFile, of all files. To follow the last read.
  void expect_whole() const;

 private:
  void add(const CheckedFile& file);

  std::filesystem::path path_;
  std::optional<Manifest> manifest_;
  std::vector<std::unique_ptr<CheckedFile>> files_;
  std::map<std::string, Entry> entries_;
};

// Between types and dtypes as safetensors spells them. Empty: no dtype of weights.
std::optional<at::ScalarType> float_type(const std::string& dtype);
std::string dtype_name(at::ScalarType type);  // of weights

// The view of `inner` in a tensor that holds the elements of `outer`.
at::Tensor sub_box(const at::Tensor& tensor, const Box& outer, const Box& inner);

}  // namespace braid::checkpoint
