#include "runtime/checkpoint/tensor_files.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "runtime/checkpoint/chunk_hash.h"

namespace braid::checkpoint {

namespace {

constexpr const char* kSuffix = ".safetensors";

std::vector<std::filesystem::path> files_in(const std::filesystem::path& path,
                                            const std::optional<Manifest>& manifest) {
  std::vector<std::filesystem::path> files;
  if (manifest) {
    for (const StoredFile& file : manifest->files)
      if (file.name.ends_with(kSuffix)) files.push_back(path / file.name);
    return files;
  }
  if (!std::filesystem::is_directory(path)) return {path};
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().extension() == kSuffix) files.push_back(entry.path());
  if (files.empty())
    throw Error({.what = "no safetensors file in the folder",
                 .where = path.string(),
                 .fix = "download the checkpoint's *.safetensors files into it; a run's checkpoint "
                        "is a folder step-..."});
  std::ranges::sort(files);
  return files;
}

// Where each tensor's rectangle begins; empty: every tensor of the file is whole.
std::map<std::string, std::vector<std::int64_t>> offsets_of(const SafetensorsFile& file) {
  std::map<std::string, std::vector<std::int64_t>> offsets;
  const auto info = file.metadata().find(kShardingInfo);
  if (info == file.metadata().end()) return offsets;
  const std::string where = fmt::format("{}: {}", file.path().string(), kShardingInfo);
  const Json json = parse_json(info->second, where);
  JsonObject object{JsonValue(json, where)};
  for (const auto& [name, value] : object.entries()) {
    JsonObject fields(value);
    for (const JsonValue& offset : fields.array("saved_offsets"))
      offsets[name].push_back(offset.integer({.low = 0, .high = std::int64_t{1} << 48}));
    fields.ignore_rest();
    if (file.contains(name) && offsets[name].size() != file.at(name).shape.size())
      value.fail("as many offsets as the tensor has dims are needed", "write the file again");
  }
  return offsets;
}

at::Tensor tensor_of(const TensorView& view, at::ScalarType type) {
  // The mapping is read only, and so is what is made of it.
  auto* data = const_cast<std::byte*>(view.data);
  if (reinterpret_cast<std::uintptr_t>(data) % c10::elementSize(type) == 0)
    return at::from_blob(data, view.shape, at::TensorOptions(type));
  at::Tensor copy = at::empty(view.shape, at::TensorOptions(type));
  std::memcpy(copy.data_ptr(), data, view.bytes);
  return copy;
}

// From the first to the last element of `part` in the row-major rectangle `outer`, in elements.
parallel::Segment span_of(const Box& outer, const Box& part) {
  const std::vector<std::int64_t> strides = strides_of(outer.sizes);
  parallel::Segment span{0, 1};
  for (std::size_t dim = 0; dim < strides.size(); ++dim) {
    const std::int64_t first = (part.offsets[dim] - outer.offsets[dim]) * strides[dim];
    span.begin += first;
    span.end += first + (part.sizes[dim] - 1) * strides[dim];
  }
  return span;
}

}  // namespace

std::optional<at::ScalarType> float_type(const std::string& dtype) {
  if (dtype == "F64") return at::kDouble;
  if (dtype == "F32") return at::kFloat;
  if (dtype == "BF16") return at::kBFloat16;
  if (dtype == "F16") return at::kHalf;
  return std::nullopt;
}

std::string dtype_name(at::ScalarType type) {
  for (const char* name : {"F64", "F32", "BF16", "F16"})
    if (float_type(name) == type) return name;
  internal_failure("weights are of a type that checkpoints have", std::source_location::current());
}

at::Tensor sub_box(const at::Tensor& tensor, const Box& outer, const Box& inner) {
  at::Tensor part = tensor;
  for (std::size_t dim = 0; dim < inner.sizes.size(); ++dim)
    part = part.narrow(static_cast<std::int64_t>(dim), inner.offsets[dim] - outer.offsets[dim],
                       inner.sizes[dim]);
  return part;
}

CheckedFile::CheckedFile(const std::filesystem::path& file, const StoredFile* stored)
    : file_(file) {
  if (stored == nullptr) return;
  stored_ = *stored;
  checked_.resize(stored->hashes.size());
}

void CheckedFile::expect_sound(const std::string& tensor, const TensorView& view,
                               std::int64_t begin, std::int64_t end) const {
  if (!stored_ || begin >= end) return;
  const std::int64_t first = view.data - file_.mapped().bytes().data();
  const std::scoped_lock lock(mutex_);
  for (std::int64_t chunk = (first + begin) / kChunkBytes; chunk <= (first + end - 1) / kChunkBytes;
       ++chunk)
    check(chunk, tensor);
}

void CheckedFile::expect_all_sound() const {
  if (!stored_) return;
  const std::scoped_lock lock(mutex_);
  for (std::int64_t chunk = 0; chunk < std::ssize(checked_); ++chunk)
    check(chunk, tensor_at(chunk * kChunkBytes));
}

// The tensor that holds a byte of the file, or the next one behind it.
std::string CheckedFile::tensor_at(std::int64_t byte) const {
  std::string found;
  std::int64_t first = -1;
  for (const std::string& name : file_.names()) {
    const TensorView& view = file_.at(name);
    const std::int64_t begin = view.data - file_.mapped().bytes().data();
    if (begin + static_cast<std::int64_t>(view.bytes) <= byte) continue;
    if (first < 0 || begin < first) {
      first = begin;
      found = name;
    }
  }
  return found;
}

void CheckedFile::check(std::int64_t chunk, const std::string& tensor) const {
  const auto index = static_cast<std::size_t>(chunk);
  if (checked_[index]) return;
  const std::span<const std::byte> bytes = file_.mapped().bytes();
  const auto begin = static_cast<std::size_t>(chunk * kChunkBytes);
  const std::size_t count = std::min(bytes.size() - begin, static_cast<std::size_t>(kChunkBytes));
  if (hash_of(bytes.subspan(begin, count)) != stored_->hashes[index])
    throw Error(
        {.what = fmt::format("tensor '{}' is damaged: chunk {} of the file, bytes {} to {}, "
                             "is not what was written",
                             tensor, chunk, begin, begin + count),
         .where = file_.path().string(),
         .fix = "restore the file from a copy, or use another checkpoint"});
  checked_[index] = true;
}

TensorFiles::TensorFiles(const std::filesystem::path& file_or_folder) : path_(file_or_folder) {
  std::error_code code;
  if (std::filesystem::exists(path_ / kManifestFile, code)) manifest_ = read_manifest(path_);
  for (const std::filesystem::path& file : files_in(path_, manifest_)) {
    const StoredFile* stored = nullptr;
    if (manifest_)
      stored = &*std::ranges::find(manifest_->files, file.filename().string(), &StoredFile::name);
    files_.push_back(std::make_unique<CheckedFile>(file, stored));
    add(*files_.back());
  }
}

void TensorFiles::add(const CheckedFile& file) {
  const auto offsets = offsets_of(file.tensors());
  for (const std::string& name : file.tensors().names()) {
    const TensorView& view = file.tensors().at(name);
    Box box = whole_box(view.shape);
    if (const auto found = offsets.find(name); found != offsets.end()) box.offsets = found->second;
    const auto [held, added] =
        entries_.emplace(name, Entry{.dtype = view.dtype, .shape = view.shape, .rectangles = {}});
    Entry& entry = held->second;
    const auto fail = [&](const std::string& what) {
      throw Error({.what = what,
                   .where = fmt::format("{} and {}",
                                        entry.rectangles.front().file->tensors().path().string(),
                                        file.tensors().path().string()),
                   .fix = "keep the files of one checkpoint in the folder, or name one file"});
    };
    if (!added && (entry.dtype != view.dtype || entry.shape.size() != view.shape.size()))
      fail(fmt::format("two files have a tensor '{}' of different kinds", name));
    for (const Rectangle& other : entry.rectangles)
      if (intersection(other.box, box) || offsets.empty())
        fail(fmt::format("two files have a tensor '{}'", name));
    for (std::size_t dim = 0; dim < box.sizes.size(); ++dim)
      entry.shape[dim] = std::max(entry.shape[dim], box.offsets[dim] + box.sizes[dim]);
    entry.rectangles.push_back({.file = &file, .view = &view, .box = std::move(box)});
  }
}

const TensorFiles::Entry* TensorFiles::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<std::string> TensorFiles::names() const {
  std::vector<std::string> all;
  all.reserve(entries_.size());
  for (const auto& entry : entries_) all.push_back(entry.first);
  return all;
}

void TensorFiles::read(const std::string& name, const Box& box, const at::Tensor& to) const {
  const Entry* entry = find(name);
  const auto fail = [&](const std::string& what, const std::string& fix) {
    throw Error(
        {.what = what, .where = fmt::format("{}: tensor '{}'", path_.string(), name), .fix = fix});
  };
  const std::string other = "use the checkpoint of this model";
  if (entry == nullptr) {
    const std::string near = nearest(name, names());
    fail(near.empty() ? "there is no such tensor"
                      : fmt::format("there is no such tensor; the nearest is '{}'", near),
         other);
  }
  const std::optional<at::ScalarType> type = float_type(entry->dtype);
  if (!type)
    fail(fmt::format("parameters of dtype {} cannot be trained", entry->dtype),
         "load a checkpoint in F64, F32, BF16 or F16, not a quantised one");
  if (entry->shape.size() != box.sizes.size())
    fail(fmt::format("it has {} dims, the model's has {}", entry->shape.size(), box.sizes.size()),
         other);
  std::int64_t found = 0;
  for (const Rectangle& rectangle : entry->rectangles) {
    const std::optional<Box> common = intersection(rectangle.box, box);
    if (!common) continue;
    const parallel::Segment span = span_of(rectangle.box, *common);
    const auto size = static_cast<std::int64_t>(c10::elementSize(*type));
    rectangle.file->expect_sound(name, *rectangle.view, span.begin * size, span.end * size);
    sub_box(to, box, *common)
        .copy_(sub_box(tensor_of(*rectangle.view, *type), rectangle.box, *common));
    found += elements(*common);
  }
  if (found != elements(box))
    fail(
        fmt::format("{} of the {} elements from [{}] to [{}] are in no file", elements(box) - found,
                    elements(box), fmt::join(box.offsets, ", "), fmt::join(box.sizes, ", ")),
        "restore the checkpoint's files");
}

at::Tensor TensorFiles::read(const std::string& name) const {
  const Entry* entry = find(name);
  internal_check(entry != nullptr, "a tensor is looked up before it is read");
  const std::optional<at::ScalarType> type = float_type(entry->dtype);
  if (type && entry->rectangles.size() == 1) {
    const Rectangle& only = entry->rectangles.front();
    if (only.box == whole_box(entry->shape)) {
      only.file->expect_sound(name, *only.view, 0, static_cast<std::int64_t>(only.view->bytes));
      return tensor_of(*only.view, *type);
    }
  }
  at::Tensor whole = at::empty(entry->shape, at::TensorOptions(type.value_or(at::kFloat)));
  read(name, whole_box(entry->shape), whole);
  return whole;
}

void TensorFiles::expect_whole() const {
  for (const auto& file : files_) file->tensors().mapped().expect_whole();
}

}  // namespace braid::checkpoint
