#include "runtime/checkpoint/shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>

#include <array>
#include <map>
#include <system_error>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_files.h"

namespace braid::checkpoint {

namespace {

constexpr std::array<const char*, 3> kStates = {"", kFirstMoment, kSecondMoment};

// The states of a range, in the order of kStates. The master of the last range is kept, because
// neighbouring rectangles ask for the same.
class RangeStates {
 public:
  const std::array<at::Tensor, 3>& of(const SavedRange& saved) {
    if (last_ != &saved) {
      states_ = {saved.master(), saved.first_moment, saved.second_moment};
      last_ = &saved;
    }
    return states_;
  }

 private:
  const SavedRange* last_ = nullptr;
  std::array<at::Tensor, 3> states_;
};

at::Tensor view_of(const at::Tensor& flat, const StoredPart& part, std::int64_t range_begin) {
  return flat.as_strided(part.box.sizes, part.strides, part.begin - range_begin);
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

Shard::Shard(const Model& model, int rank, const Snapshot& snapshot)
    : rank_(rank), snapshot_(&snapshot) {
  std::map<std::string, std::vector<Rectangle>> by_tensor;
  std::vector<std::string> order;
  const std::vector<SavedRange>& ranges = snapshot.ranges();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const SavedRange& saved = ranges[i];
    dtype_ = dtype_name(saved.first_moment.scalar_type());
    for (StoredPart& part :
         stored_parts(model, saved.layer, *saved.parameters, *saved.buffer, saved.range)) {
      std::vector<Rectangle>& rectangles = by_tensor[part.tensor];
      if (rectangles.empty()) order.push_back(part.tensor);
      bytes_ += elements(part.box) * std::ssize(kStates) *
                static_cast<std::int64_t>(saved.first_moment.element_size());
      Rectangle rectangle{.tensor = part.tensor, .box = part.box, .pieces = {}};
      rectangle.pieces.push_back({.range = i, .part = std::move(part)});
      rectangles.push_back(std::move(rectangle));
    }
  }
  for (const std::string& tensor : order) {
    std::vector<Rectangle>& rectangles = by_tensor[tensor];
    join_neighbours(rectangles);
    if (files_.size() < rectangles.size()) files_.resize(rectangles.size());
    for (std::size_t i = 0; i < rectangles.size(); ++i)
      files_[i].push_back(std::move(rectangles[i]));
  }
}

// Fewer rectangles are fewer files: q, k and v of one head lie behind each other, for example.
void Shard::join_neighbours(std::vector<Rectangle>& rectangles) const {
  for (std::size_t i = 0; i < rectangles.size();) {
    bool grew = false;
    for (std::size_t j = 0; j < rectangles.size() && !grew; ++j) {
      if (i == j) continue;
      const std::optional<Box> both = joined(rectangles[i].box, rectangles[j].box);
      if (!both) continue;
      rectangles[i].box = *both;
      for (Piece& piece : rectangles[j].pieces) rectangles[i].pieces.push_back(std::move(piece));
      rectangles.erase(rectangles.begin() + static_cast<std::ptrdiff_t>(j));
      grew = true;
    }
    // A larger rectangle may now have a neighbour among those before it.
    i = grew ? 0 : i + 1;
  }
}

std::string Shard::file_name(std::size_t file) const {
  return fmt::format("shard-{:05}-model-{:05}-of-{:05}.safetensors", rank_, file + 1,
                     files_.size());
}

StoredFile Shard::write_file(const std::filesystem::path& folder, std::size_t file) const {
  std::vector<TensorSpec> specs;
  Json offsets = Json::object();
  for (const Rectangle& rectangle : files_[file])
    for (const char* state : kStates) {
      specs.push_back({state + rectangle.tensor, dtype_, rectangle.box.sizes});
      offsets[specs.back().name] = {{"saved_offsets", rectangle.box.offsets}};
    }
  SafetensorsWriter out(
      folder / file_name(file), specs,
      {{"format", "pt"}, {"DCP_VERSION", "1.0"}, {kShardingInfo, offsets.dump()}});
  RangeStates states;
  for (const Rectangle& rectangle : files_[file])
    for (std::size_t state = 0; state < kStates.size(); ++state) {
      at::Tensor values;
      for (const Piece& piece : rectangle.pieces) {
        const SavedRange& saved = snapshot_->ranges()[piece.range];
        const at::Tensor flat = states.of(saved)[state];
        const at::Tensor part = view_of(flat, piece.part, saved.range.begin);
        if (rectangle.pieces.size() == 1) {
          values = part.contiguous();
          break;
        }
        if (!values.defined()) values = at::empty(rectangle.box.sizes, flat.options());
        sub_box(values, rectangle.box, piece.part.box).copy_(part);
      }
      out.add(bytes_of(values));
    }
  out.commit();
  return {.name = file_name(file), .bytes = out.bytes(), .hashes = out.hashes()};
}

std::vector<StoredFile> Shard::write(const std::filesystem::path& folder) const {
  const at::NoGradGuard no_grad;
  try {
    std::vector<StoredFile> files;
    files.reserve(files_.size());
    for (std::size_t i = 0; i < files_.size(); ++i) files.push_back(write_file(folder, i));
    return files;
  } catch (...) {
    remove(folder);
    throw;
  }
}

void Shard::remove(const std::filesystem::path& folder) const noexcept {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    std::error_code ignored;
    std::filesystem::remove(folder / file_name(i), ignored);
  }
}

}  // namespace braid::checkpoint
