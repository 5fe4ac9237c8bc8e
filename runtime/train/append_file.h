#pragma once
// A file that grows, one whole piece at a time: what was appended has left this process, so that a
// crash of it loses nothing.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace braid::train {

class AppendFile {
 public:
  // Opens the file, or makes it. Throws an Error when that fails, as every function here.
  explicit AppendFile(std::filesystem::path file);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  std::string read_all() const;
  void cut(std::int64_t size);
  void append(std::string_view bytes);
  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void fail(int reason) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace braid::train
