#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "planner/core/error.h"
#include "planner/core/file.h"

namespace braid::train {

// A file that grows by whole records and that a full disk does not end: a record that cannot be
// written is left out and counted, and no part of it stays behind.
class RecordFile {
 public:
  // Throws an Error where the file cannot be opened for writing, or another process has it open
  // this way. The claim ends with the object or its process, however that ends.
  explicit RecordFile(const std::filesystem::path& file);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  std::string read_all() const { return file_.read_all(); }
  void cut(std::int64_t size);  // in bytes; throws an Error
  void append(std::string_view record);

  const std::filesystem::path& path() const { return file_.path(); }
  std::int64_t missing() const { return missing_; }  // records that were left out
  // Why the first of them was; empty: none was.
  const std::optional<Mistake>& trouble() const { return trouble_; }

 private:
  AppendFile file_;
  int lock_ = -1;          // a descriptor that holds the claim
  std::int64_t size_ = 0;  // bytes of whole records
  std::int64_t missing_ = 0;
  std::optional<Mistake> trouble_;
};

}  // namespace braid::train
