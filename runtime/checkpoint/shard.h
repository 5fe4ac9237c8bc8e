#pragma once
// The files that one rank writes: its rectangles of the unsharded tensors, as PyTorch's distributed
// checkpoints keep them in safetensors. A file holds one rectangle of a tensor; a rank that has
// more writes more files.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "planner/model/model.h"
#include "runtime/checkpoint/box.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/checkpoint/stored_part.h"

namespace braid::checkpoint {

// Under these names with the weight's behind them an optimizer's states stand in the files.
inline constexpr const char* kFirstMoment = "optimizer.exp_avg.";
inline constexpr const char* kSecondMoment = "optimizer.exp_avg_sq.";

// Decides once, for a layout, what goes where.
class Shard {
 public:
  // `snapshot` outlives the shard.
  Shard(const Model& model, int rank, const Snapshot& snapshot);

  // Writes the snapshot as it is now. Throws an Error and leaves no file of its own behind.
  std::vector<StoredFile> write(const std::filesystem::path& folder) const;
  // Removes what write() left there, as far as that is possible.
  void remove(const std::filesystem::path& folder) const noexcept;

  std::int64_t bytes() const { return bytes_; }  // of weights and moments, without headers
  const std::string& dtype() const { return dtype_; }

 private:
  // A rectangle of a tensor, and the parts of the snapshot's ranges that fill it.
  struct Piece {
    std::size_t range = 0;  // of the snapshot
    StoredPart part;
  };
  struct Rectangle {
    std::string tensor;
    Box box;
    std::vector<Piece> pieces;
  };

  void join_neighbours(std::vector<Rectangle>& rectangles) const;
  std::string file_name(std::size_t file) const;
  StoredFile write_file(const std::filesystem::path& folder, std::size_t file) const;

  int rank_;
  const Snapshot* snapshot_;
  std::string dtype_;
  std::int64_t bytes_ = 0;
  std::vector<std::vector<Rectangle>> files_;
};

}  // namespace braid::checkpoint
