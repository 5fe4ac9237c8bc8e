#include "runtime/train/megatron_index.h"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "planner/core/error.h"

namespace braid::train {

namespace {

using checkpoint::load;
using checkpoint::MappedFile;

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::string_view kOldMagic("TNTIDX\0\0", 8);
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26,
                      kHeaderBytes = 34;
constexpr std::size_t kSizeBytes = 4, kPointerBytes = 8, kDocumentBytes = 8;

[[noreturn]] void refuse(const MappedFile& file, std::size_t offset, std::string what,
                         std::string fix =
                             "write the dataset again: its two files belong "
                             "together and must be whole") {
  throw Error({.what = std::move(what),
               .where = fmt::format("{}: byte {}", file.path().string(), offset),
               .fix = std::move(fix)});
}

// Where the three tables start.
struct Tables {
  std::size_t sequences = 0, documents = 0;  // entries
  std::size_t sizes_at = 0, pointers_at = 0, documents_at = 0;
};

void check_magic(const MappedFile& file) {
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
  if (text.starts_with(kOldMagic))
    refuse(file, 0, "this index is of the older kind without memory mapping",
           "preprocess again with --dataset-impl mmap, or use scripts/make_indexed_dataset");
  if (!text.starts_with(kMagic.substr(0, text.size())))
    refuse(file, 0, "this is not an index of Megatron's: it does not start with MMIDIDX",
           "name the prefix that the .bin and .idx files share");
  if (text.size() < kHeaderBytes)
    refuse(file, text.size(),
           fmt::format("the index ends after {} bytes, inside its header of {}", text.size(),
                       kHeaderBytes));
}

TokenType read_type(const MappedFile& file) {
  const auto code = load<std::uint8_t>(file.bytes(), kTypeAt);
  switch (code) {
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 8:
      return static_cast<TokenType>(code);
    case 6:
    case 7:
      refuse(file, kTypeAt, fmt::format("type code {} means real numbers, not tokens", code),
             "preprocess the data with a tokenizer");
    default:
      refuse(file, kTypeAt, fmt::format("type code {} is unknown", code),
             "write the dataset with a type from 1 to 5, or 8");
  }
}

Tables find_tables(const MappedFile& file) {
  const auto version = load<std::uint64_t>(file.bytes(), kVersionAt);
  if (version != kVersion)
    refuse(file, kVersionAt, fmt::format("version {} of the index is not readable here", version),
           fmt::format("write the dataset in version {}", kVersion));
  const auto sequences = load<std::uint64_t>(file.bytes(), kSequencesAt);
  const auto documents = load<std::uint64_t>(file.bytes(), kDocumentsAt);
  // Bounds first, so that the sum below cannot overflow.
  if (sequences > file.size() || documents > file.size())
    refuse(file, sequences > file.size() ? kSequencesAt : kDocumentsAt,
           fmt::format("{} sequences and {} document boundaries do not fit into {} bytes",
                       sequences, documents, file.size()));
  Tables tables{.sequences = sequences, .documents = documents};
  tables.sizes_at = kHeaderBytes;
  tables.pointers_at = tables.sizes_at + sequences * kSizeBytes;
  tables.documents_at = tables.pointers_at + sequences * kPointerBytes;
  const std::size_t end = tables.documents_at + documents * kDocumentBytes;
  if (file.size() < end)
    refuse(file, file.size(),
           fmt::format("the index ends after {} bytes; {} sequences and {} document boundaries "
                       "need {}",
                       file.size(), sequences, documents, end));
  if (file.size() == end + sequences && sequences > 0)
    refuse(file, end, "the index has a mode for each sequence: it is of a multimodal dataset",
           "use a dataset of text alone");
  if (file.size() > end)
    refuse(file, end, fmt::format("{} bytes follow where the index should end", file.size() - end));
  return tables;
}

void check_documents(const MappedFile& file, const Tables& tables) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < tables.documents; ++i) {
    const std::size_t at = tables.documents_at + i * kDocumentBytes;
    const auto first = load<std::int64_t>(file.bytes(), at);
    const bool last = i + 1 == tables.documents;
    if (first < before || (i == 0 && first != 0) ||
        (last && std::cmp_not_equal(first, tables.sequences)))
      refuse(file, at,
             fmt::format("document boundary {} is {}; boundaries rise from 0 to the number of "
                         "sequences, {}",
                         i, first, tables.sequences));
    before = first;
  }
}

void add_sequences(const MappedFile& file, const Tables& tables, std::int64_t data_bytes,
                   MegatronIndex& index) {
  const std::int64_t element = bytes_of(index.type);
  std::int64_t expected = -1;  // the byte at which the last run would go on
  for (std::size_t i = 0; i < tables.sequences; ++i) {
    const std::size_t size_at = tables.sizes_at + i * kSizeBytes;
    const std::size_t pointer_at = tables.pointers_at + i * kPointerBytes;
    const auto size = load<std::int32_t>(file.bytes(), size_at);
    const auto pointer = load<std::int64_t>(file.bytes(), pointer_at);
    if (size < 0) refuse(file, size_at, fmt::format("sequence {} has {} tokens", i, size));
    if (pointer < 0 || size * element > data_bytes - pointer)
      refuse(file, pointer_at,
             fmt::format("sequence {} has {} tokens of {} bytes from byte {} on; the .bin file has "
                         "only {} bytes",
                         i, size, element, pointer, data_bytes));
    if (pointer != expected) index.runs.push_back({index.tokens, pointer});
    expected = pointer + size * element;
    index.tokens += size;
  }
}

}  // namespace

std::int64_t bytes_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8:
      return 1;
    case TokenType::int16:
    case TokenType::uint16:
      return 2;
    case TokenType::int32:
      return 4;
    case TokenType::int64:
      return 8;
  }
  return 0;
}

MegatronIndex read_megatron_index(const MappedFile& index, std::int64_t data_bytes) {
  check_magic(index);
  const Tables tables = find_tables(index);
  MegatronIndex read;
  read.type = read_type(index);
  read.sequences = static_cast<std::int64_t>(tables.sequences);
  read.documents = static_cast<std::int64_t>(tables.documents) - 1;
  if (tables.documents == 0)
    refuse(index, kDocumentsAt, "the index has no document boundaries; even no document has one");
  check_documents(index, tables);
  add_sequences(index, tables, data_bytes, read);
  index.expect_whole();
  return read;
}

std::optional<std::int64_t> document_of(const MappedFile& index, std::int64_t token) {
  check_magic(index);
  const Tables tables = find_tables(index);
  std::int64_t sequence = 0;
  for (std::int64_t end = 0; std::cmp_less(sequence, tables.sequences); ++sequence) {
    end += load<std::int32_t>(index.bytes(),
                              tables.sizes_at + static_cast<std::size_t>(sequence) * kSizeBytes);
    if (token < end) break;
  }
  for (std::size_t i = 1; i < tables.documents; ++i)
    if (sequence < load<std::int64_t>(index.bytes(), tables.documents_at + i * kDocumentBytes))
      return static_cast<std::int64_t>(i) - 1;
  return std::nullopt;
}

}  // namespace braid::train
