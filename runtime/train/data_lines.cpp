#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "runtime/checkpoint/mapped_file.h"
#include "runtime/train/data.h"

namespace braid::train {

namespace {

constexpr std::int64_t kByteValues = 256;

// What is kept of the file is the number of lines in each block, 32 MB for a terabyte; a line's
// place is found in its block when it is read.
class TextLines final : public Dataset {
 public:
  TextLines(const std::filesystem::path& file, std::int64_t sequence)
      : file_(file), sequence_(sequence) {
    count_lines();
    file_.expect_whole();
    if (samples() == 0)
      throw Error({.what = "the file has no line with a byte in it",
                   .where = file.string(),
                   .fix = "choose a file with one text a line"});
  }

  std::int64_t samples() const override { return lines_before_.back(); }
  std::int64_t vocabulary() const override { return kByteValues; }
  std::string describe() const override {
    return fmt::format("{}: {} lines, bytes as tokens, {} of each", file_.path().string(),
                       format_count(static_cast<double>(samples())), sequence_);
  }
  bool pads() const override { return true; }
  std::optional<std::int64_t> length(std::int64_t index) const override {
    const auto bytes = static_cast<std::int64_t>(line(index).size());
    file_.expect_whole();
    return std::min(sequence_, bytes);
  }

  void read(std::int64_t index, std::span<std::int64_t> tokens) const override {
    const std::span<const std::byte> text = line(index);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = i < text.size() ? std::to_integer<std::int64_t>(text[i]) : 0;
    file_.expect_whole();
  }
  std::string content() const override { return sampled_content(file_); }

 private:
  static constexpr std::size_t kBlock = std::size_t{1} << 18;

  // The next end of a line at or behind `begin`, or `limit`.
  std::size_t end_of_line(std::size_t begin, std::size_t limit) const {
    const std::byte* bytes = file_.bytes().data();
    const void* found = std::memchr(bytes + begin, '\n', limit - begin);
    return found == nullptr
               ? limit
               : static_cast<std::size_t>(static_cast<const std::byte*>(found) - bytes);
  }

  void count_lines() {
    const std::size_t size = file_.size();
    lines_before_.assign((size + kBlock - 1) / kBlock + 1, 0);
    for (std::size_t begin = 0; begin < size;) {
      const std::size_t end = end_of_line(begin, size);
      if (end > begin) ++lines_before_[begin / kBlock + 1];
      begin = end + 1;
    }
    for (std::size_t i = 1; i < lines_before_.size(); ++i) lines_before_[i] += lines_before_[i - 1];
  }

  // Its bytes; of a longer line a sequence and a label.
  std::span<const std::byte> line(std::int64_t index) const {
    internal_check(index >= 0 && index < samples(), "a sample's index lies inside its dataset");
    const auto next = std::ranges::upper_bound(lines_before_, index);
    const auto block = static_cast<std::size_t>(next - lines_before_.begin()) - 1;
    std::int64_t left = index - lines_before_[block];
    const std::size_t size = file_.size();
    std::size_t begin = block * kBlock;
    // A line that began earlier is the earlier block's.
    if (begin > 0 && file_.bytes()[begin - 1] != std::byte{'\n'})
      begin = end_of_line(begin, size) + 1;
    while (true) {
      if (begin >= size) file_.expect_whole();  // zeros in place of what was cut off have no lines
      internal_check(begin < size, "a block has the lines that were counted in it");
      const std::size_t used = begin + static_cast<std::size_t>(sequence_) + 1;
      const std::size_t end = end_of_line(begin, left == 0 ? std::min(size, used) : size);
      if (end > begin && left-- == 0) return file_.bytes().subspan(begin, end - begin);
      begin = end + 1;
    }
  }

  checkpoint::MappedFile file_;
  std::int64_t sequence_;
  std::vector<std::int64_t> lines_before_;  // each block, and the end
};

}  // namespace

std::unique_ptr<Dataset> text_lines(const std::filesystem::path& file, std::int64_t sequence) {
  return std::make_unique<TextLines>(file, sequence);
}

}  // namespace braid::train
