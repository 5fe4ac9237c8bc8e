#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "runtime/train/data.h"
#include "runtime/train/megatron_index.h"

namespace braid::train {

namespace {

using checkpoint::MappedFile;

std::filesystem::path prefix_of(std::filesystem::path file) {
  const std::filesystem::path suffix = file.extension();
  if (suffix == ".bin" || suffix == ".idx") file.replace_extension();
  return file;
}

std::filesystem::path with_suffix(const std::filesystem::path& prefix, const char* suffix) {
  return prefix.string() + suffix;
}

class Megatron final : public Dataset {
 public:
  Megatron(const std::filesystem::path& prefix, std::int64_t sequence, std::int64_t vocabulary)
      : prefix_(prefix),
        data_(with_suffix(prefix, ".bin")),
        index_(read_megatron_index(MappedFile(with_suffix(prefix, ".idx")),
                                   static_cast<std::int64_t>(data_.size()))),
        sequence_(sequence),
        vocabulary_(vocabulary),
        samples_(samples_in(index_.tokens, sequence, data_.path().string())) {}

  std::int64_t samples() const override { return samples_; }
  std::string describe() const override {
    return fmt::format("{}: {} tokens in {} documents, {} samples of {}", data_.path().string(),
                       format_count(static_cast<double>(index_.tokens)), index_.documents, samples_,
                       sequence_);
  }

  std::int64_t vocabulary() const override { return vocabulary_; }
  std::string content() const override {
    return sampled_content(data_) + sampled_content(MappedFile(with_suffix(prefix_, ".idx")));
  }

  void read(std::int64_t index, std::span<std::int64_t> tokens) const override {
    internal_check(index >= 0 && index < samples_, "a sample's index lies inside its dataset");
    internal_check(std::cmp_equal(tokens.size(), sequence_ + 1),
                   "a sample has its sequence's size");
    const std::int64_t first = index * sequence_;
    each_token(first, sequence_ + 1, [&](std::int64_t i, std::int64_t byte, std::int64_t token) {
      if (token < 0 || token >= vocabulary_) refuse_id(first + i, byte, token);
      tokens[static_cast<std::size_t>(i)] = token;
    });
    data_.expect_whole();
  }

 private:
  // Calls use(i, byte of the data file, token) for `count` tokens of the stream from `first` on.
  template <class Use>
  void each_token(std::int64_t first, std::int64_t count, Use use) const {
    auto run = std::ranges::upper_bound(index_.runs, first, {}, &TokenRun::first_token) - 1;
    std::int64_t done = 0;
    while (done < count) {
      const bool last = run + 1 == index_.runs.end();
      const std::int64_t end = last ? index_.tokens : (run + 1)->first_token;
      const std::int64_t at = first + done;
      const std::int64_t take = std::min(count - done, end - at);
      const std::int64_t byte = run->first_byte + (at - run->first_token) * bytes_of(index_.type);
      each_of_type(byte, take, [&](std::int64_t i, std::int64_t place, std::int64_t token) {
        use(done + i, place, token);
      });
      done += take;
      ++run;
    }
  }

  template <class Use>
  void each_of_type(std::int64_t byte, std::int64_t count, Use use) const {
    switch (index_.type) {
      case TokenType::uint8:
        return each_of<std::uint8_t>(byte, count, use);
      case TokenType::int8:
        return each_of<std::int8_t>(byte, count, use);
      case TokenType::int16:
        return each_of<std::int16_t>(byte, count, use);
      case TokenType::int32:
        return each_of<std::int32_t>(byte, count, use);
      case TokenType::int64:
        return each_of<std::int64_t>(byte, count, use);
      case TokenType::uint16:
        return each_of<std::uint16_t>(byte, count, use);
    }
  }

  template <class T, class Use>
  void each_of(std::int64_t byte, std::int64_t count, Use use) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = byte + i * static_cast<std::int64_t>(sizeof(T));
      const std::int64_t id{checkpoint::load<T>(data_.bytes(), static_cast<std::size_t>(at))};
      use(i, at, id);
    }
  }

  [[noreturn]] void refuse_id(std::int64_t token, std::int64_t byte, std::int64_t id) const {
    data_.expect_whole();
    const auto document = document_of(MappedFile(with_suffix(prefix_, ".idx")), token);
    throw Error({.what = fmt::format("{} holds the id {}; ids of this run go from 0 to {}",
                                     document ? fmt::format("document {}", *document) : "the data",
                                     id, vocabulary_ - 1),
                 .where = fmt::format("{}: byte {}", data_.path().string(), byte),
                 .fix = id < 0
                            ? std::string("write the dataset again with a type that holds every id")
                            : fmt::format("use data of this model's tokenizer, or a model with a "
                                          "vocabulary of more than {}",
                                          id)});
  }

  std::filesystem::path prefix_;
  MappedFile data_;
  MegatronIndex index_;
  std::int64_t sequence_, vocabulary_, samples_;
};

}  // namespace

std::unique_ptr<Dataset> megatron(const std::filesystem::path& file, std::int64_t sequence,
                                  std::int64_t vocabulary) {
  return std::make_unique<Megatron>(prefix_of(file), sequence, vocabulary);
}

}  // namespace braid::train
