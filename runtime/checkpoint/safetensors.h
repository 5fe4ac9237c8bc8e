#pragma once
// The safetensors format: 8 bytes of header length, a JSON header with each tensor's dtype, shape
// and place, then the tensors' bytes one after the other, without overlaps or holes.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/file.h"
#include "runtime/checkpoint/chunk_hash.h"
#include "runtime/checkpoint/mapped_file.h"

namespace braid::checkpoint {

// A tensor inside somebody else's memory. Old writers did not align their headers, so that `data`
// may be unaligned: copy it out with memcpy.
struct TensorView {
  std::string dtype;  // "F32", "BF16", … as the format spells it
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

using Metadata = std::map<std::string, std::string>;

class SafetensorsFile {
 public:
  // Maps the file and checks all of its header; throws an Error that names file, tensor and bytes.
  explicit SafetensorsFile(const std::filesystem::path& file);

  // Ascending.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  // Throws an Error that names the nearest tensor. The view lives as long as this object.
  const TensorView& at(const std::string& name) const;
  const Metadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return file_.path(); }
  const MappedFile& mapped() const { return file_; }

 private:
  void read_header(std::string_view header, std::span<const std::byte> data);

  MappedFile file_;
  std::map<std::string, TensorView> tensors_;
  Metadata metadata_;
};

// What a file's header says of a tensor.
struct TensorSpec {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
};

// Writes a file tensor by tensor, and hashes its chunks on the way.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& file, std::span<const TensorSpec> tensors,
                    const Metadata& metadata);
  // The tensors' bytes, in the order of the specs, in pieces of any size.
  void add(std::span<const std::byte> bytes);
  // All bytes were added: the file appears under its name once the disk has it (OutputFile).
  void commit();

  std::int64_t bytes() const { return hasher_.bytes(); }          // of the file so far
  std::vector<std::string> hashes() { return hasher_.finish(); }  // of its chunks; once

 private:
  OutputFile out_;
  ChunkHasher hasher_;
  std::int64_t expected_ = 0;  // bytes of the whole file
};

struct NamedTensor {
  std::string name;
  TensorView tensor;
};

// Writes beside the target, waits until the disk has it and renames, so that a crash or a full disk
// leaves the old file whole. Wide dtypes come first, then names ascend: every tensor is aligned,
// and the bytes are the same in whichever order the tensors are given.
void write_safetensors(const std::filesystem::path& file, std::span<const NamedTensor> tensors,
                       const Metadata& metadata = {});

struct SafetensorsType {
  std::string_view name;
  std::int64_t bytes;
};
// Every dtype of whole bytes, from the narrow to the wide: the order in which the format's own
// library sorts them (from the last to the first) when it writes.
inline constexpr SafetensorsType kSafetensorsTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"C64", 8}, {"F64", 8}, {"I64", 8},     {"U64", 8},
};
// The row of a dtype, or nullptr.
const SafetensorsType* find_safetensors_type(std::string_view name);

}  // namespace braid::checkpoint
