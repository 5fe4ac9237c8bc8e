#include "runtime/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <string>

#include "tests/support/file_limit.h"
#include "tests/support/files.h"

namespace braid::checkpoint {
namespace {

TensorView view_of(std::string dtype, std::vector<std::int64_t> shape, const void* data,
                   std::size_t bytes) {
  return {std::move(dtype), std::move(shape), static_cast<const std::byte*>(data), bytes};
}

std::string with_length(const std::string& header, const std::string& data) {
  return little_endian(header.size(), 8) + header + data;
}

// A byte more or less in any of these and the format's own library could not read the file.
TEST(Safetensors, BytesOfASmallFileByHand) {
  const ScratchFolder folder;
  const std::array<float, 2> values = {1.0F, -2.0F};
  const std::array<std::uint8_t, 3> flags = {1, 0, 1};
  const NamedTensor tensors[] = {{"flags", view_of("BOOL", {3}, flags.data(), 3)},
                                 {"weight", view_of("F32", {2, 1}, values.data(), 8)}};
  write_safetensors(folder / "a.safetensors", tensors, {{"format", "pt"}});

  // 151 bytes of JSON and 1 space; 1.0f is 3f800000, -2.0f is c0000000.
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("weight":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                             R"("flags":{"dtype":"BOOL","shape":[3],"data_offsets":[8,11]}})"
                             " ";
  const std::string data("\x00\x00\x80\x3f\x00\x00\x00\xc0\x01\x00\x01", 11);
  EXPECT_EQ(header.size() % 8, 0U);
  EXPECT_EQ(read_bytes(folder / "a.safetensors"), with_length(header, data));
}

TEST(Safetensors, ReadsWhatWasWritten) {
  const ScratchFolder folder;
  const std::array<float, 2> values = {0.5F, 4.0F};
  const std::int64_t scalar = -7;
  const NamedTensor tensors[] = {{"empty", view_of("BF16", {0, 5}, nullptr, 0)},
                                 {"b.scalar", view_of("I64", {}, &scalar, 8)},
                                 {"a \"quoted\" näme", view_of("F32", {2}, values.data(), 8)}};
  write_safetensors(folder / "a", tensors, {{"step", "12"}, {"by", "braid"}});

  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a \"quoted\" näme", "b.scalar", "empty"}));
  EXPECT_EQ(file.metadata(), (Metadata{{"by", "braid"}, {"step", "12"}}));
  const TensorView& read = file.at("a \"quoted\" näme");
  EXPECT_EQ(read.dtype, "F32");
  EXPECT_EQ(read.shape, (std::vector<std::int64_t>{2}));
  ASSERT_EQ(read.bytes, 8U);
  std::array<float, 2> copy{};
  std::memcpy(copy.data(), read.data, 8);
  EXPECT_EQ(copy, values);
  ASSERT_EQ(file.at("b.scalar").bytes, 8U);
  EXPECT_EQ(std::memcmp(file.at("b.scalar").data, &scalar, 8), 0);
  EXPECT_TRUE(file.at("b.scalar").shape.empty());
  EXPECT_EQ(file.at("empty").bytes, 0U);
  EXPECT_TRUE(file.contains("empty"));
  EXPECT_FALSE(file.contains("full"));
}

TEST(Safetensors, OrderOfTheTensorsDoesNotChangeTheFile) {
  const ScratchFolder folder;
  const std::array<std::int64_t, 2> values = {1, 2};
  const NamedTensor one{"one", view_of("F32", {2}, values.data(), 8)};
  const NamedTensor two{"two", view_of("I64", {2}, values.data(), 16)};
  write_safetensors(folder / "a", std::array{one, two});
  write_safetensors(folder / "b", std::array{two, one});
  EXPECT_EQ(read_bytes(folder / "a"), read_bytes(folder / "b"));
}

TEST(Safetensors, ReadsAHeaderThatIsNotAligned) {
  const ScratchFolder folder;
  const std::string header = R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  ASSERT_NE(header.size() % 8, 0U);
  write_bytes(folder / "a", with_length(header, "z"));
  EXPECT_EQ(*SafetensorsFile(folder / "a").at("x").data, std::byte{'z'});
}

TEST(Safetensors, AFileWithoutTensorsIsSound) {
  const ScratchFolder folder;
  write_safetensors(folder / "a", {});
  EXPECT_TRUE(SafetensorsFile(folder / "a").names().empty());
  EXPECT_EQ(read_bytes(folder / "a"), with_length("{}      ", ""));
}

TEST(Safetensors, RefusesDamagedFiles) {
  struct Case {
    const char* fact;
    std::string bytes;
    const char* what;
    const char* where;  // behind the file's name
  };
  const auto two = [](const std::string& first, const std::string& second) {
    return with_length(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + first +
                           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}",
                       "wxyz");
  };
  const auto one = [](const std::string& fields, const std::string& data) {
    return with_length("{\"a\":{" + fields + "}}", data);
  };
  const Case cases[] = {
      {"an empty file", "", "ends after 0 bytes", ": byte 0"},
      {"half a length", "\x02zz", "ends after 3 bytes", ": byte 3"},
      {"a header cut short", little_endian(9, 8) + "{}", "claims 9 bytes, but only 2 follow",
       ": byte 10"},
      {"a length beyond the format's limit", little_endian(100'000'001, 8) + "{}",
       "claims 100000001 bytes, more than", ": byte 0"},
      {"a length with its highest bit set", std::string(8, '\xff'), "more than", ": byte 0"},
      {"another format", with_length("PK\x03\x04", ""), "does not start with '{'", ": byte 8"},
      {"broken JSON", with_length("{\"a\":", ""), "not valid JSON", ": header"},
      {"a name that stands twice",
       with_length(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                   R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                   ""),
       "stands twice", ": header"},
      {"an unknown dtype", one(R"("dtype":"F31","shape":[1],"data_offsets":[0,1])", "x"),
       "dtype 'F31' is not known", ": header.a.dtype"},
      {"a negative size", one(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", "x"),
       "-1 is out of range", ": header.a.shape[0]"},
      {"a missing field", one(R"("dtype":"U8","data_offsets":[0,1])", "x"), "'shape' is missing",
       ": header.a"},
      {"an unknown field", one(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":1)", "x"),
       "unknown key", ": header.a"},
      {"a shape that needs more bytes",
       one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", "wxyz"),
       "make 8 bytes, the offsets 4", ": header.a"},
      {"a shape that needs fewer bytes",
       one(R"("dtype":"U8","shape":[2],"data_offsets":[0,4])", "wxyz"),
       "make 2 bytes, the offsets 4", ": header.a"},
      {"a shape that leaves 63 bits",
       one(R"("dtype":"F64","shape":[2147483648,2147483648],"data_offsets":[0,0])", ""),
       "more bytes than a file can hold", ": header.a"},
      {"an end before the begin", one(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", "x"),
       "before its begin", ": header.a.data_offsets"},
      {"an end behind the file", one(R"("dtype":"U8","shape":[2],"data_offsets":[0,2])", "x"),
       "ends at byte 2 of the data, which has only 1", ": header.a.data_offsets"},
      {"three offsets", one(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,1])", "x"),
       "expected two offsets", ": header.a.data_offsets"},
      {"an overlap", two("[0,2]", "[1,3]"), "'a' and 'b' overlap in bytes 1 to 2", ": header"},
      {"the same bytes twice", two("[0,2]", "[0,2]"), "'a' and 'b' overlap", ": header"},
      {"a hole in front", two("[1,3]", "[3,5]") + "!",
       "bytes 0 to 1 of the data, between 'the header' and 'a'", ": header"},
      {"bytes at the end", two("[0,2]", "[2,4]") + "!", "bytes 4 to 5 of the data, behind 'b'",
       ": header"},
      {"metadata that is not text", with_length(R"({"__metadata__":{"step":1}})", ""),
       "expected a string", ": header.__metadata__.step"},
  };
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "x.safetensors";
  for (const Case& c : cases) {
    write_bytes(file, c.bytes);
    const Mistake found = mistake_of(c.fact, [&] { SafetensorsFile{file}; });
    EXPECT_TRUE(holds(found.what, c.what)) << c.fact;
    EXPECT_TRUE(holds(found.where, file.string() + c.where)) << c.fact;
  }
}

TEST(Safetensors, RefusesWhatIsNotAFile) {
  const ScratchFolder folder;
  EXPECT_TRUE(holds(mistake_of("an absent file", [&] { SafetensorsFile{folder / "none"}; }).what,
                    "No such file"));
  EXPECT_TRUE(
      holds(mistake_of("a folder", [&] { SafetensorsFile{folder.path()}; }).what, "a folder"));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(holds(mistake_of("a pipe", [&] { SafetensorsFile{folder / "pipe"}; }).what,
                    "not a regular file"));
}

TEST(Safetensors, AMissingTensorNamesTheNearest) {
  const ScratchFolder folder;
  const std::uint8_t byte = 1;
  write_safetensors(folder / "a",
                    std::array{NamedTensor{"layers.0.weight", view_of("U8", {1}, &byte, 1)}});
  const SafetensorsFile file(folder / "a");
  const Mistake found = mistake_of("a missing tensor", [&] { file.at("layers.0.weights"); });
  EXPECT_TRUE(holds(found.what, "nearest is 'layers.0.weight'"));
}

TEST(Safetensors, AFullDiskLeavesTheOldFileWhole) {
  const ScratchFolder folder;
  const std::uint8_t byte = 1;
  const std::filesystem::path file = folder / "a";
  write_bytes(file, "old");
  const std::array tensors = {NamedTensor{"x", view_of("U8", {1}, &byte, 1)}};
  {
    const FileSizeLimit limit(16);
    const Mistake found = mistake_of("a full disk", [&] { write_safetensors(file, tensors); });
    EXPECT_TRUE(holds(found.what, "File too large"));
  }
  EXPECT_EQ(read_bytes(file), "old");

  write_safetensors(file, tensors);
  EXPECT_EQ(SafetensorsFile(file).names(), std::vector<std::string>{"x"});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_TRUE(
      holds(mistake_of("no folder", [&] { write_safetensors(folder / "none/a", tensors); }).what,
            "does not exist"));
}

TEST(MappedFile, MovesWithItsBytes) {
  const ScratchFolder folder;
  write_bytes(folder / "a", "first");
  write_bytes(folder / "b", "second");
  MappedFile file(folder / "a");
  MappedFile other(folder / "b");
  file = std::move(other);
  EXPECT_EQ(file.size(), 6U);
  EXPECT_EQ(load<char>(file.bytes(), 0), 's');
  EXPECT_EQ(load<std::uint16_t>(file.bytes(), 1), 'e' + ('c' << 8));
  const MappedFile last(std::move(file));
  EXPECT_EQ(last.path(), folder / "b");
  EXPECT_EQ(last.size(), 6U);
}

}  // namespace
}  // namespace braid::checkpoint
