#include "runtime/checkpoint/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"

namespace braid::checkpoint {

namespace {

constexpr std::size_t kLengthBytes = 8;
// The format's own limit.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr IntRange kSizes{.low = 0};

// Where a tensor lies in the data behind the header: [begin, end).
struct Extent {
  std::int64_t begin = 0, end = 0;
  std::string name;
  constexpr auto operator<=>(const Extent&) const = default;
};

[[noreturn]] void refuse(const std::filesystem::path& file, std::size_t offset, std::string what) {
  throw Error({.what = std::move(what),
               .where = fmt::format("{}: byte {}", file.string(), offset),
               .fix = "this is no whole safetensors file: download or write it again"});
}

std::string_view header_of(const MappedFile& file) {
  const std::size_t size = file.size();
  if (size < kLengthBytes)
    refuse(file.path(), size,
           fmt::format("the file ends after {} bytes, inside the length of its header", size));
  const auto length = load<std::uint64_t>(file.bytes(), 0);
  if (length > kMaxHeaderBytes)
    refuse(file.path(), 0,
           fmt::format("the header claims {} bytes, more than the format's limit of {}", length,
                       kMaxHeaderBytes));
  if (length > size - kLengthBytes)
    refuse(
        file.path(), size,
        fmt::format("the header claims {} bytes, but only {} follow", length, size - kLengthBytes));
  const std::string_view header(reinterpret_cast<const char*>(file.bytes().data()) + kLengthBytes,
                                static_cast<std::size_t>(length));
  if (!header.starts_with('{'))
    refuse(file.path(), kLengthBytes, "the header does not start with '{'");
  return header;
}

std::int64_t element_bytes(const JsonValue& dtype) {
  const std::string name = dtype.string();
  if (const SafetensorsType* type = find_safetensors_type(name)) return type->bytes;
  std::vector<std::string> known;
  for (const SafetensorsType& type : kSafetensorsTypes) known.emplace_back(type.name);
  dtype.fail(fmt::format("the dtype '{}' is not known here", name),
             fmt::format("save the tensor as one of {}", join(known, ", ")));
}

// Elements times their size; no value where that leaves 63 bits.
std::optional<std::int64_t> bytes_of(const std::vector<std::int64_t>& shape, std::int64_t element) {
  std::int64_t bytes = element;
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return bytes;
}

Extent read_extent(const JsonValue& offsets, const std::string& name, std::size_t data_bytes) {
  const std::vector<JsonValue> pair = offsets.array();
  if (pair.size() != 2)
    offsets.fail(fmt::format("expected two offsets, found {}", pair.size()),
                 "write them as [begin, end]");
  Extent extent{pair[0].integer(kSizes), pair[1].integer(kSizes), name};
  if (extent.begin > extent.end)
    offsets.fail(fmt::format("the tensor ends at byte {}, before its begin at byte {}", extent.end,
                             extent.begin),
                 "the header is damaged: download or write the file again");
  if (std::cmp_greater(extent.end, data_bytes))
    offsets.fail(fmt::format("the tensor ends at byte {} of the data, which has only {}",
                             extent.end, data_bytes),
                 "the file was cut short: download or write it again");
  return extent;
}

TensorView read_tensor(const JsonValue& value, const Extent& extent, JsonObject& fields,
                       std::span<const std::byte> data) {
  TensorView view;
  const JsonValue dtype = fields.at("dtype");
  const std::int64_t element = element_bytes(dtype);
  view.dtype = dtype.string();
  for (const JsonValue& size : fields.array("shape")) view.shape.push_back(size.integer(kSizes));
  const std::optional<std::int64_t> needed = bytes_of(view.shape, element);
  const std::int64_t held = extent.end - extent.begin;
  if (needed != held)
    value.fail(needed ? fmt::format("dtype and shape make {} bytes, the offsets {}", *needed, held)
                      : fmt::format("the shape makes more bytes than a file can hold"),
               "the header is damaged: download or write the file again");
  view.bytes = static_cast<std::size_t>(held);
  view.data = data.data() + extent.begin;
  return view;
}

// Every byte of the data belongs to exactly one tensor; nothing can hide in a hole.
void check_cover(std::vector<Extent> extents, std::size_t data_bytes, const std::string& where) {
  const auto fail = [&](std::string what) {
    throw Error({.what = std::move(what),
                 .where = where,
                 .fix = "the header is damaged: download or write the file again"});
  };
  std::ranges::sort(extents);
  std::int64_t end = 0;
  std::string before = "the header";
  for (const Extent& extent : extents) {
    if (extent.begin < end)
      fail(fmt::format("'{}' and '{}' overlap in bytes {} to {} of the data", before, extent.name,
                       extent.begin, std::min(end, extent.end)));
    if (extent.begin > end)
      fail(fmt::format("bytes {} to {} of the data, between '{}' and '{}', belong to no tensor",
                       end, extent.begin, before, extent.name));
    end = extent.end;
    before = extent.name;
  }
  if (std::cmp_less(end, data_bytes))
    fail(fmt::format("bytes {} to {} of the data, behind '{}', belong to no tensor", end,
                     data_bytes, before));
}

}  // namespace

const SafetensorsType* find_safetensors_type(std::string_view name) {
  const auto* found = std::ranges::find(kSafetensorsTypes, name, &SafetensorsType::name);
  return found == std::end(kSafetensorsTypes) ? nullptr : found;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& file) : file_(file) {
  const std::string_view header = header_of(file_);
  read_header(header, file_.bytes().subspan(kLengthBytes + header.size()));
}

void SafetensorsFile::read_header(std::string_view header, std::span<const std::byte> data) {
  const std::string where = file_.path().string() + ": header";
  const Json json = parse_json(header, where);
  JsonObject top{JsonValue(json, where)};
  std::vector<Extent> extents;
  for (const auto& [name, value] : top.entries()) {
    JsonObject fields(value);
    if (name == "__metadata__") {
      for (const auto& [key, text] : fields.entries()) metadata_[key] = text.string();
      continue;
    }
    extents.push_back(read_extent(fields.at("data_offsets"), name, data.size()));
    tensors_.emplace(name, read_tensor(value, extents.back(), fields, data));
    fields.finish();
  }
  check_cover(std::move(extents), data.size(), where);
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> all;
  all.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) all.push_back(name);
  return all;
}

const TensorView& SafetensorsFile::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  const std::string near = nearest(name, names());
  throw Error({.what = fmt::format("there is no tensor '{}'{}", name,
                                   near.empty() ? "" : fmt::format("; the nearest is '{}'", near)),
               .where = path().string(),
               .fix = "check that the file belongs to this model and, if it is one of several "
                      "shards, that the index names the right one"});
}

}  // namespace braid::checkpoint
