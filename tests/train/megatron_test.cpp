#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/train/data.h"
#include "tests/support/files.h"

namespace braid::train {
namespace {

using Tokens = std::vector<std::int64_t>;

// Of a vocabulary that every id fits into.
std::unique_ptr<Dataset> megatron(const std::filesystem::path& file, std::int64_t sequence) {
  return train::megatron(file, sequence, std::int64_t{1} << 40);
}

Tokens sample(const Dataset& data, std::int64_t index, std::size_t size) {
  Tokens tokens(size, -1);
  data.read(index, tokens);
  return tokens;
}

// The parts of an index, each free to be wrong.
struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint64_t type = 8;  // uint16
  std::uint64_t num_sequences = 3, num_boundaries = 3;
  std::vector<std::int64_t> sizes = {2, 1, 3};
  std::vector<std::int64_t> pointers = {0, 4, 6};
  std::vector<std::int64_t> boundaries = {0, 2, 3};
  std::string tail = {};

  std::string bytes() const {
    std::string all = magic + little_endian(version, 8) + little_endian(type, 1) +
                      little_endian(num_sequences, 8) + little_endian(num_boundaries, 8);
    for (const std::int64_t x : sizes) all += little_endian(static_cast<std::uint64_t>(x), 4);
    for (const std::int64_t x : pointers) all += little_endian(static_cast<std::uint64_t>(x), 8);
    for (const std::int64_t x : boundaries) all += little_endian(static_cast<std::uint64_t>(x), 8);
    return all + tail;
  }
};

std::string packed(const Tokens& tokens, int width) {
  std::string bytes;
  for (const std::int64_t token : tokens)
    bytes += little_endian(static_cast<std::uint64_t>(token), width);
  return bytes;
}

void write_pair(const ScratchFolder& folder, const Index& index, const std::string& data) {
  write_bytes(folder / "d.idx", index.bytes());
  write_bytes(folder / "d.bin", data);
}

// One document with the tokens 1 and 300: the bytes as the format's description gives them.
constexpr char kSmallIndex[] =
    "MMIDIDX\0\0"                        // magic
    "\1\0\0\0\0\0\0\0"                   // version
    "\10"                                // uint16
    "\1\0\0\0\0\0\0\0"                   // one sequence
    "\2\0\0\0\0\0\0\0"                   // two boundaries
    "\2\0\0\0"                           // of two tokens
    "\0\0\0\0\0\0\0\0"                   // from byte 0
    "\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0";  // boundaries 0 and 1
const std::string kSmallIndexBytes(kSmallIndex, sizeof(kSmallIndex) - 1);
const std::string kSmallData("\1\0\54\1", 4);

TEST(Megatron, ReadsAFileWrittenByHand) {
  const ScratchFolder folder;
  write_bytes(folder / "d.idx", kSmallIndexBytes);
  write_bytes(folder / "d.bin", kSmallData);
  const auto data = megatron(folder / "d", 1);
  EXPECT_EQ(data->samples(), 1);
  EXPECT_EQ(sample(*data, 0, 2), (Tokens{1, 300}));
}

TEST(Megatron, DocumentsFormOneStream) {
  const ScratchFolder folder;
  write_pair(folder, Index{}, packed({10, 11, 12, 13, 14, 65535}, 2));
  for (const char* name : {"d", "d.bin", "d.idx"}) {
    const auto data = megatron(folder / name, 2);
    EXPECT_EQ(data->samples(), 2) << name;
    EXPECT_EQ(sample(*data, 0, 3), (Tokens{10, 11, 12})) << name;
    EXPECT_EQ(sample(*data, 1, 3), (Tokens{12, 13, 14})) << name;
    EXPECT_TRUE(holds(data->describe(), "6 tokens in 2 documents, 2 samples of 2"));
  }
}

TEST(Megatron, SequencesMayLieInAnyOrder) {
  const ScratchFolder folder;
  Index index;
  index.pointers = {8, 0, 2};  // 14 15, then 10, then 11 12 13
  write_pair(folder, index, packed({10, 11, 12, 13, 14, 15}, 2));
  const auto data = megatron(folder / "d", 5);
  EXPECT_EQ(sample(*data, 0, 6), (Tokens{14, 15, 10, 11, 12, 13}));
  const auto pairs = megatron(folder / "d", 2);
  EXPECT_EQ(sample(*pairs, 1, 3), (Tokens{10, 11, 12}));
  const auto singles = megatron(folder / "d", 1);
  EXPECT_EQ(sample(*singles, 1, 2), (Tokens{15, 10}));
  EXPECT_EQ(sample(*singles, 2, 2), (Tokens{10, 11}));
}

TEST(Megatron, ReadsEveryTypeOfTokens) {
  struct Case {
    const char* fact;
    std::uint64_t type;
    std::int64_t width;
    std::int64_t highest;
  };
  const Case cases[] = {{"uint8", 1, 1, 255},        {"int8", 2, 1, 127},
                        {"int16", 3, 2, 32767},      {"int32", 4, 4, 2147483647},
                        {"int64", 5, 8, 4294967296}, {"uint16", 8, 2, 65535}};
  const ScratchFolder folder;
  for (const Case& c : cases) {
    Index index;
    index.type = c.type;
    index.pointers = {0, 2 * c.width, 3 * c.width};
    const Tokens tokens = {0, 1, 2, 3, c.highest, 5};
    write_pair(folder, index, packed(tokens, static_cast<int>(c.width)));
    const auto data = megatron(folder / "d", 5);
    EXPECT_EQ(sample(*data, 0, 6), tokens) << c.fact;
  }
}

TEST(Megatron, EmptySequencesAddNothing) {
  const ScratchFolder folder;
  Index index;
  index.sizes = {0, 3, 0};
  index.pointers = {0, 0, 6};
  write_pair(folder, index, packed({7, 8, 9}, 2));
  EXPECT_EQ(sample(*megatron(folder / "d", 2), 0, 3), (Tokens{7, 8, 9}));
}

TEST(Megatron, RefusesDamagedIndices) {
  struct Case {
    const char* fact;
    Index index;
    const char* what;
    int byte;
  };
  const Case cases[] = {
      {"another file", {.magic = "not a magic"}, "does not start with MMIDIDX", 0},
      {"an older index", {.magic = std::string("TNTIDX\0\0\0", 9)}, "older kind", 0},
      {"version 2", {.version = 2}, "version 2 of the index", 9},
      {"an unknown type", {.type = 9}, "type code 9 is unknown", 17},
      {"type 0", {.type = 0}, "type code 0 is unknown", 17},
      {"real numbers", {.type = 7}, "real numbers, not tokens", 17},
      {"a count of sequences beyond the file", {.num_sequences = 1ULL << 62}, "do not fit", 18},
      {"a count of documents beyond the file", {.num_boundaries = 1ULL << 62}, "do not fit", 26},
      {"one sequence too many", {.num_sequences = 4}, "need 106", 94},
      {"modes of a multimodal dataset", {.tail = "\1\1\1"}, "multimodal", 94},
      {"bytes behind the end", {.tail = "!"}, "1 bytes follow where the index should end", 94},
      {"a negative size", {.sizes = {2, -1, 3}}, "sequence 1 has -1 tokens", 38},
      {"a negative place", {.pointers = {0, -4, 6}}, "from byte -4 on", 54},
      {"a place behind the data", {.pointers = {0, 4, 1 << 20}}, "only 12 bytes", 62},
      {"an end behind the data", {.pointers = {0, 4, 7}}, "3 tokens of 2 bytes from byte 7 on", 62},
      {"documents that do not start at 0", {.boundaries = {1, 2, 3}}, "boundary 0 is 1", 70},
      {"documents that fall", {.boundaries = {0, -1, 3}}, "boundary 1 is -1", 78},
      {"documents that end early", {.boundaries = {0, 1, 2}}, "boundary 2 is 2", 86},
      {"no boundaries", {.num_boundaries = 0, .boundaries = {}}, "no document boundaries", 26},
  };
  const ScratchFolder folder;
  for (const Case& c : cases) {
    write_pair(folder, c.index, packed({10, 11, 12, 13, 14, 15}, 2));
    const Mistake found = mistake_of(c.fact, [&] { megatron(folder / "d", 2); });
    EXPECT_TRUE(holds(found.what, c.what)) << c.fact;
    EXPECT_EQ(found.where, (folder / "d.idx").string() + ": byte " + std::to_string(c.byte))
        << c.fact;
  }
}

TEST(Megatron, RefusesEveryTruncation) {
  const ScratchFolder folder;
  const std::string whole = Index{}.bytes();
  const std::string data = packed({10, 11, 12, 13, 14, 15}, 2);
  write_bytes(folder / "d.bin", data);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_bytes(folder / "d.idx", whole.substr(0, size));
    const Mistake found = mistake_of(std::to_string(size) + " bytes of the index",
                                     [&] { megatron(folder / "d", 2); });
    EXPECT_TRUE(holds(found.what, "the index ends after " + std::to_string(size))) << size;
  }
  write_bytes(folder / "d.idx", whole);
  for (std::size_t size = 0; size < data.size(); ++size) {
    write_bytes(folder / "d.bin", data.substr(0, size));
    mistake_of(std::to_string(size) + " bytes of data", [&] { megatron(folder / "d", 2); });
  }
}

TEST(Megatron, AnIdOutsideOfTheVocabularyIsFoundWhenItsSampleIsRead) {
  struct Case {
    const char* fact;
    std::int64_t id;
    const char* what;
  };
  const Case cases[] = {
      {"a negative id", -3, "document 1 holds the id -3; ids of this run go from 0 to 15"},
      {"an id that the model does not know", 16, "document 1 holds the id 16"}};
  for (const Case& c : cases) {
    const ScratchFolder folder;
    Index index;
    index.type = 3;  // int16
    write_pair(folder, index, packed({10, 11, 12, c.id, 14, 15}, 2));
    const auto data = train::megatron(folder / "d", 2, 16);
    EXPECT_EQ(data->vocabulary(), 16);  // before anything was read
    EXPECT_EQ(sample(*data, 0, 3), (Tokens{10, 11, 12}));
    const Mistake found = mistake_of(c.fact, [&] { sample(*data, 1, 3); });
    EXPECT_TRUE(holds(found.what, c.what));
    EXPECT_EQ(found.where, (folder / "d.bin").string() + ": byte 6");
  }
}

TEST(Megatron, ContentIsOfTheBytesNotOfTheName) {
  const ScratchFolder folder;
  write_pair(folder, Index{}, packed({10, 11, 12, 13, 14, 15}, 2));
  for (const char* suffix : {".bin", ".idx"})
    std::filesystem::copy(folder / ("d" + std::string(suffix)),
                          folder / ("e" + std::string(suffix)));
  const std::string before = megatron(folder / "d", 2)->content();
  EXPECT_EQ(megatron(folder / "e", 2)->content(), before);
  write_bytes(folder / "d.bin", packed({10, 11, 12, 13, 14, 16}, 2));
  EXPECT_NE(megatron(folder / "d", 2)->content(), before);
}

TEST(Megatron, DataThatIsCutShortIsAnErrorWhenItIsRead) {
  const ScratchFolder folder;
  write_pair(folder, Index{}, packed({10, 11, 12, 13, 14, 15}, 2));
  const auto data = megatron(folder / "d", 2);
  std::filesystem::resize_file(folder / "d.bin", 4);
  const Mistake found = mistake_of("a shorter file", [&] { sample(*data, 1, 3); });
  EXPECT_TRUE(holds(found.what, "from 12 bytes to 4"));
  EXPECT_EQ(found.where, (folder / "d.bin").string());
}

TEST(Megatron, RefusesTooFewTokensAndMissingFiles) {
  const ScratchFolder folder;
  write_pair(folder, Index{}, packed({10, 11, 12, 13, 14, 15}, 2));
  EXPECT_EQ(megatron(folder / "d", 5)->samples(), 1);
  EXPECT_TRUE(holds(mistake_of("too few", [&] { megatron(folder / "d", 6); }).fix, "at most 5"));
  std::filesystem::remove(folder / "d.idx");
  EXPECT_EQ(mistake_of("no index", [&] { megatron(folder / "d", 2); }).where,
            (folder / "d.idx").string());
  std::filesystem::remove(folder / "d.bin");
  EXPECT_EQ(mistake_of("no data", [&] { megatron(folder / "d", 2); }).where,
            (folder / "d.bin").string());
}

int make_indexed_dataset(const ScratchFolder& folder, const std::string& arguments) {
  const std::string command = "cd '" + folder.path().string() + "' && python3 '" +
                              BRAID_SOURCE_DIR "/scripts/make_indexed_dataset' --output made " +
                              arguments + " > log 2>&1";
  return std::system(command.c_str());  // NOLINT(bugprone-command-processor): a fixed command
}

TEST(MakeIndexedDataset, WritesTheBytesOfTheFormat) {
  const ScratchFolder folder;
  write_bytes(folder / "a.jsonl", "[1, 300]\n");
  ASSERT_EQ(make_indexed_dataset(folder, "a.jsonl"), 0) << read_bytes(folder / "log");
  EXPECT_EQ(read_bytes(folder / "made.idx"), kSmallIndexBytes);
  EXPECT_EQ(read_bytes(folder / "made.bin"), kSmallData);
}

TEST(MakeIndexedDataset, ReaderAndWriterAgree) {
  const ScratchFolder folder;
  write_bytes(folder / "a.txt", "hi");
  write_bytes(folder / "b.jsonl", "{\"tokens\": [70000]}\n\n[4, 5]\n");
  ASSERT_EQ(make_indexed_dataset(folder, "--end-of-document 2 a.txt b.jsonl"), 0)
      << read_bytes(folder / "log");
  const auto data = megatron(folder / "made", 7);
  EXPECT_EQ(sample(*data, 0, 8), (Tokens{'h', 'i', 2, 70000, 2, 4, 5, 2}));
  EXPECT_TRUE(holds(data->describe(), "8 tokens in 3 documents"));
  for (const char* type : {"int32", "int64"}) {
    ASSERT_EQ(make_indexed_dataset(folder, std::string("--dtype ") + type + " b.jsonl"), 0);
    EXPECT_EQ(sample(*megatron(folder / "made", 2), 0, 3), (Tokens{70000, 4, 5})) << type;
  }
}

TEST(MakeIndexedDataset, RefusesBadInputAndLeavesNothing) {
  struct Case {
    const char* fact;
    const char* input;
    const char* arguments;
    const char* message;
  };
  const Case cases[] = {
      {"broken JSON", "[1]\n[2", "a.jsonl", "a.jsonl: line 2: not valid JSON"},
      {"a real number", "[1.5]", "a.jsonl", "a.jsonl: line 1: expected a list of token ids"},
      {"a negative id", "[-1]", "a.jsonl", "expected a list of token ids"},
      {"an id too large for the type", "[256]", "--dtype uint8 a.jsonl", "256 does not fit"},
      {"an absent file", "[1]", "b.jsonl", "b.jsonl: No such file"},
      {"no documents", "", "a.jsonl", "no documents"},
  };
  for (const Case& c : cases) {
    const ScratchFolder folder;
    write_bytes(folder / "a.jsonl", c.input);
    EXPECT_NE(make_indexed_dataset(folder, c.arguments), 0) << c.fact;
    EXPECT_TRUE(holds(read_bytes(folder / "log"), c.message)) << c.fact;
    for (const char* left : {"made.bin", "made.idx", "made.bin.tmp", "made.idx.tmp"})
      EXPECT_FALSE(std::filesystem::exists(folder / left)) << c.fact << ": " << left;
  }
}

}  // namespace
}  // namespace braid::train
