#pragma once
// Files as the program reads and writes them. What is read is limited in size; what is written is
// complete or not there. Everything that opens a file for writing goes through here.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace braid {

// The largest input, in bytes: plans of thousands of layers take a few MB.
inline constexpr std::int64_t kLargestInput = std::int64_t{256} << 20;

// All of a file, at most kLargestInput. Regular files, pipes and character devices are read, "-" is
// standard input; an Error for the rest and for what is longer.
std::string read_text(const std::filesystem::path& file);

// Writes all of a file or leaves it as it was; see OutputFile.
void write_text(const std::filesystem::path& file, std::string_view text);

// True for "-" and for other names of standard output, such as /dev/stdout.
bool is_standard_output(const std::filesystem::path& file);

// True for a regular file and for a name that is free: what is written there can be read again.
bool keeps_what_is_written(const std::filesystem::path& file);

// Throws the Error that writing the file would throw. Called before the work whose result goes
// there. Opens it as OutputFile does and writes a few blocks, which it removes; a pipe stays
// unopened, because its reader would see the end of it.
void expect_writable(const std::filesystem::path& file);

// A file in the making. A regular file, or one that is not there yet, appears under its name with
// commit(), once the disk has all of it: until then, and for good where something fails or the
// process is killed, the old one stays. A symbolic link stays and its target is written. A
// character device, a pipe and standard output ("-") are written directly. An existing file keeps
// its permissions, and its owner where the system allows.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path file);
  ~OutputFile();  // discards what was not committed
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::string_view bytes);
  // Tells a full disk before there is anything to write; what it writes is to be discarded.
  void probe();
  void commit();

 private:
  void open_temporary();

  std::filesystem::path file_;       // as it was given, for messages
  std::filesystem::path target_;     // replaced by commit(); empty if the file is written directly
  std::filesystem::path temporary_;  // empty while the file has no name
  int descriptor_ = -1;
};

// A file that grows by appended pieces. Each has left the process when append() returns, so that a
// crash of the process loses none.
class AppendFile {
 public:
  // Opens the file or creates it. Throws an Error where that fails, as every function here.
  explicit AppendFile(std::filesystem::path file);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  std::string read_all() const;
  void cut(std::int64_t size);  // in bytes
  void append(std::string_view bytes);
  const std::filesystem::path& path() const { return file_; }

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace braid
