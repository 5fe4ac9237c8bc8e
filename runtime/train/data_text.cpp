#include <fmt/core.h>

#include <utility>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "runtime/checkpoint/mapped_file.h"
#include "runtime/train/data.h"

namespace braid::train {

namespace {

constexpr std::int64_t kByteValues = 256;

class TextFile final : public Dataset {
 public:
  TextFile(const std::filesystem::path& file, std::int64_t sequence)
      : file_(file),
        sequence_(sequence),
        samples_(samples_in(static_cast<std::int64_t>(file_.size()), sequence, file.string())) {}

  std::int64_t samples() const override { return samples_; }
  std::int64_t vocabulary() const override { return kByteValues; }
  std::string describe() const override {
    return fmt::format("{}: {} bytes as tokens, {} samples of {}", file_.path().string(),
                       format_count(static_cast<double>(file_.size())), samples_, sequence_);
  }

  void read(std::int64_t index, std::span<std::int64_t> tokens) const override {
    internal_check(index >= 0 && index < samples_, "a sample's index lies inside its dataset");
    internal_check(std::cmp_equal(tokens.size(), sequence_ + 1),
                   "a sample has its sequence's size");
    const auto bytes = file_.bytes().subspan(static_cast<std::size_t>(index * sequence_));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = std::to_integer<std::int64_t>(bytes[i]);
    file_.expect_whole();
  }
  std::string content() const override { return sampled_content(file_); }

 private:
  checkpoint::MappedFile file_;
  std::int64_t sequence_, samples_;
};

}  // namespace

std::unique_ptr<Dataset> text_file(const std::filesystem::path& file, std::int64_t sequence) {
  return std::make_unique<TextFile>(file, sequence);
}

}  // namespace braid::train
