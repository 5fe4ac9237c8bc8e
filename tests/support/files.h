#pragma once
// Files for tests: a folder that goes away with its scope, bytes in and out, and what an Error
// says.

#include <gtest/gtest.h>
#include <stdlib.h>  // mkdtemp is POSIX: <cstdlib> need not declare it

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "planner/core/error.h"

namespace braid {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "braid_test_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "cannot make the folder " << name;
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.flush()) << file;
}

inline std::string read_bytes(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The least `count` bytes of an integer, the lowest first.
inline std::string little_endian(std::uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

// What an action that must be refused says.
template <class Action>
Mistake mistake_of(std::string_view fact, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_FALSE(error.mistake().fix.empty()) << fact;
    return error.mistake();
  }
  ADD_FAILURE() << fact << " went unnoticed";
  return {};
}

// Whether `text` holds `part`, with both in the message.
inline ::testing::AssertionResult holds(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in '" << text << "'";
}

}  // namespace braid
