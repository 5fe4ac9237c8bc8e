#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "runtime/checkpoint/mapped_file.h"
#include "runtime/train/data.h"

namespace braid::train {

namespace {

constexpr std::int64_t kByteValues = 256;

class TextLines final : public Dataset {
 public:
  TextLines(const std::filesystem::path& file, std::int64_t sequence)
      : file_(file), sequence_(sequence) {
    std::size_t begin = 0;
    const auto bytes = file_.bytes();
    for (std::size_t i = 0; i <= bytes.size(); ++i) {
      if (i < bytes.size() && bytes[i] != std::byte{'\n'}) continue;
      if (i > begin) lines_.push_back({begin, i - begin});
      begin = i + 1;
    }
    file_.expect_whole();
    if (lines_.empty())
      throw Error({.what = "the file has no line with a byte in it",
                   .where = file.string(),
                   .fix = "choose a file with one text a line"});
  }

  std::int64_t samples() const override { return static_cast<std::int64_t>(lines_.size()); }
  std::int64_t vocabulary() const override { return kByteValues; }
  std::string describe() const override {
    return fmt::format("{}: {} lines, bytes as tokens, {} of each", file_.path().string(),
                       format_count(static_cast<double>(lines_.size())), sequence_);
  }
  bool pads() const override { return true; }
  std::optional<std::int64_t> length(std::int64_t index) const override {
    return std::min(sequence_, static_cast<std::int64_t>(line(index).bytes));
  }

  void read(std::int64_t index, std::span<std::int64_t> tokens) const override {
    const auto text = file_.bytes().subspan(line(index).begin, line(index).bytes);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = i < text.size() ? std::to_integer<std::int64_t>(text[i]) : 0;
    file_.expect_whole();
  }
  std::string content() const override { return sampled_content(file_); }

 private:
  struct Line {
    std::size_t begin = 0, bytes = 0;
  };
  const Line& line(std::int64_t index) const {
    internal_check(index >= 0 && index < samples(), "a sample's index lies inside its dataset");
    return lines_[static_cast<std::size_t>(index)];
  }

  checkpoint::MappedFile file_;
  std::int64_t sequence_;
  std::vector<Line> lines_;
};

}  // namespace

std::unique_ptr<Dataset> text_lines(const std::filesystem::path& file, std::int64_t sequence) {
  return std::make_unique<TextLines>(file, sequence);
}

}  // namespace braid::train
