#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "runtime/checkpoint/mapped_file.h"
#include "runtime/train/data.h"

namespace braid::train {

namespace {

constexpr std::uint64_t kValues = 256;

class SyntheticImages final : public Dataset {
 public:
  SyntheticImages(const ImageShape& shape, std::int64_t classes, std::uint64_t seed)
      : shape_(shape), classes_(classes), seed_(seed) {}

  std::int64_t samples() const override { return 0; }
  std::int64_t vocabulary() const override { return classes_; }
  std::optional<ImageShape> image() const override { return shape_; }
  std::string describe() const override {
    return fmt::format("synthetic: endless images of {0} × {0} in {1} classes, seed {2}",
                       shape_.side, classes_, seed_);
  }

  std::int64_t read_image(std::int64_t index, std::span<std::uint8_t> values) const override {
    const std::uint64_t key = mix(seed_, static_cast<std::uint64_t>(index));
    const std::uint64_t label = mix(key) % static_cast<std::uint64_t>(classes_);
    const std::uint64_t pattern = mix(mix(seed_), label);
    // Eight values of each word.
    for (std::size_t word = 0; word * 8 < values.size(); ++word) {
      const std::uint64_t own = mix(pattern, word), noise = mix(key, word);
      const std::size_t end = std::min(values.size(), word * 8 + 8);
      for (std::size_t i = word * 8; i < end; ++i) {
        const std::size_t shift = i % 8 * 8;
        values[i] =
            static_cast<std::uint8_t>(((own >> shift) % kValues + (noise >> shift) % kValues) / 2);
      }
    }
    return static_cast<std::int64_t>(label);
  }

 private:
  ImageShape shape_;
  std::int64_t classes_;
  std::uint64_t seed_;
};

// docs/file-formats.md: a mark, five numbers of 32 bits, as many for the classes, then the values.
constexpr std::array<char, 8> kMark = {'B', 'R', 'D', 'I', 'M', 'G', '0', '1'};
constexpr std::size_t kNumber = sizeof(std::uint32_t);
constexpr std::size_t kHeader = kMark.size() + 5 * kNumber;
constexpr std::int64_t kMaxImages = std::int64_t{1} << 31;
constexpr std::int64_t kMaxChannels = 256;
constexpr std::int64_t kMaxSide = std::int64_t{1} << 14;

class ImageFile final : public Dataset {
 public:
  explicit ImageFile(const std::filesystem::path& file) : file_(file) {
    const auto bytes = file_.bytes();
    if (bytes.size() < kHeader || std::memcmp(bytes.data(), kMark.data(), kMark.size()) != 0)
      refuse("this is no image dataset", "write one with scripts/make_image_dataset");
    count_ = number(0);
    shape_.channels = number(1);
    shape_.side = number(2);
    classes_ = number(4);
    if (number(3) != shape_.side || shape_.side < 1 || shape_.side > kMaxSide ||
        shape_.channels < 1 || shape_.channels > kMaxChannels || count_ < 1 ||
        count_ > kMaxImages || classes_ < 1)
      refuse(fmt::format("{} images of {} × {} with {} channels in {} classes", count_, number(2),
                         number(3), shape_.channels, classes_),
             "write square images with scripts/make_image_dataset");
    std::int64_t expected = 0;  // bytes behind the header; count and values alone cannot overflow
    const bool overflows = __builtin_mul_overflow(
        count_, static_cast<std::int64_t>(kNumber) + shape_.values(), &expected);
    if (overflows || std::cmp_not_equal(bytes.size() - kHeader, expected))
      refuse(
          fmt::format("{} bytes behind the header; {} images of {} × {} with {} channels need {}",
                      bytes.size() - kHeader, count_, shape_.side, shape_.side, shape_.channels,
                      overflows ? "more than 2^63" : fmt::format("{}", expected)),
          "copy the file again, or write it anew");
    file_.expect_whole();
  }

  std::int64_t samples() const override { return count_; }
  std::int64_t vocabulary() const override { return classes_; }
  std::optional<ImageShape> image() const override { return shape_; }
  std::string describe() const override {
    return fmt::format("{0}: {1} images of {2} × {2} in {3} classes", file_.path().string(),
                       format_count(static_cast<double>(count_)), shape_.side, classes_);
  }

  std::int64_t read_image(std::int64_t index, std::span<std::uint8_t> values) const override {
    internal_check(index >= 0 && index < count_, "a sample's index lies inside its dataset");
    const auto label = static_cast<std::int64_t>(checkpoint::load<std::uint32_t>(
        file_.bytes(), kHeader + static_cast<std::size_t>(index) * kNumber));
    file_.expect_whole();
    if (label >= classes_)
      refuse(fmt::format("image {} is of class {}, there are {}", index, label, classes_),
             "write the file anew");
    const auto from = file_.bytes().subspan(kHeader + static_cast<std::size_t>(count_) * kNumber +
                                                static_cast<std::size_t>(index * shape_.values()),
                                            static_cast<std::size_t>(shape_.values()));
    if (!values.empty()) std::memcpy(values.data(), from.data(), from.size());
    file_.expect_whole();
    return label;
  }
  std::string content() const override { return sampled_content(file_); }

 private:
  std::int64_t number(std::size_t which) const {
    return static_cast<std::int64_t>(
        checkpoint::load<std::uint32_t>(file_.bytes(), kMark.size() + which * kNumber));
  }
  [[noreturn]] void refuse(std::string what, std::string fix) const {
    throw Error({.what = std::move(what), .where = file_.path().string(), .fix = std::move(fix)});
  }

  checkpoint::MappedFile file_;
  std::int64_t count_ = 0, classes_ = 0;
  ImageShape shape_;
};

}  // namespace

std::unique_ptr<Dataset> synthetic_images(const ImageShape& shape, std::int64_t classes,
                                          std::uint64_t seed) {
  return std::make_unique<SyntheticImages>(shape, classes, seed);
}

std::unique_ptr<Dataset> image_file(const std::filesystem::path& file) {
  return std::make_unique<ImageFile>(file);
}

}  // namespace braid::train
