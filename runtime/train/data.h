#pragma once
// What a model is trained on: samples of tokens or images, found by number. Which sample comes when
// depends on the position in training alone, never on the layout of the ranks, so that every plan
// sees the same batches and a resumed run goes on where it stopped.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "planner/model/image.h"
#include "runtime/train/permutation.h"

namespace braid::train {

// Reading is const and safe from several threads: ranks may be threads of one process.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t samples() const = 0;  // 0: endless
  // Fills sequence + 1 tokens: inputs are [0, sequence), labels [1, sequence + 1). `index` lies
  // below samples().
  virtual void read(std::int64_t index, std::span<std::int64_t> tokens) const;
  // Of images, instead: fills the values, [channel, row, column], and returns the class. No values:
  // the class alone is asked for.
  virtual std::int64_t read_image(std::int64_t index, std::span<std::uint8_t> values) const;
  // Every id is below this, or how many classes there are. Known without reading the data: a sample
  // that breaks it is an Error when it is read.
  virtual std::int64_t vocabulary() const = 0;
  // Where samples are padded: how many tokens of this one are not; else nothing.
  virtual std::optional<std::int64_t> length(std::int64_t /*index*/) const { return std::nullopt; }
  virtual bool pads() const { return false; }
  virtual std::optional<ImageShape> image() const { return std::nullopt; }
  virtual std::string describe() const = 0;  // for people
  // Equal for equal data, whatever the files are called. Of files, a sample of their bytes.
  virtual std::string content() const { return describe(); }
};

// Endless and learnable. A token follows from the one before it by a fixed permutation of the
// vocabulary, except that every kNoise-th on average is drawn evenly from the vocabulary. All
// tokens are equally frequent, so that a model that learns nothing stays at a loss of
// ln(vocabulary), and one that learns all there is reaches about ln(vocabulary) / kNoise + 0.4.
inline constexpr int kNoise = 8;
std::unique_ptr<Dataset> synthetic(std::int64_t vocabulary, std::uint64_t seed);

// A file's bytes as tokens. Sample i starts at byte i · sequence; what is left at the end is
// unused.
std::unique_ptr<Dataset> text_file(const std::filesystem::path& file, std::int64_t sequence);

// A file's lines, bytes as tokens: one a sample, cut to the sequence or padded to it. Lines without
// a byte are none.
std::unique_ptr<Dataset> text_lines(const std::filesystem::path& file, std::int64_t sequence);

// Endless and learnable: every class has one pattern of its own, under noise.
std::unique_ptr<Dataset> synthetic_images(const ImageShape& shape, std::int64_t classes,
                                          std::uint64_t seed);

// Images with their classes in one file (docs/file-formats.md has its layout), as
// scripts/make_image_dataset writes it.
std::unique_ptr<Dataset> image_file(const std::filesystem::path& file);

// Megatron-LM's indexed dataset, PREFIX.bin and PREFIX.idx; `file` is the prefix or either file.
// Its documents form one stream of tokens, in their order and with nothing between them. Sample i
// starts at token i · sequence. Ids are to be below `vocabulary`: each is checked when a sample
// that holds it is read. scripts/make_indexed_dataset writes the format.
std::unique_ptr<Dataset> megatron(const std::filesystem::path& file, std::int64_t sequence,
                                  std::int64_t vocabulary);

// How many samples of `sequence` tokens (and a last label) a stream of `tokens` holds. Throws an
// Error when there is none.
std::int64_t samples_in(std::int64_t tokens, std::int64_t sequence, const std::string& where);

// Which sample stands at which position of training. Every epoch visits each sample once, shuffled
// anew, in no memory. Of an endless dataset (0 samples) it is the position itself.
class SampleOrder {
 public:
  SampleOrder(std::int64_t samples, std::uint64_t seed, bool shuffle)
      : samples_(samples), seed_(seed), shuffle_(shuffle) {}
  // `position`: how many samples the whole run has used before this one.
  std::int64_t at(std::int64_t position) const;

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  bool shuffle_;
};

}  // namespace braid::train
