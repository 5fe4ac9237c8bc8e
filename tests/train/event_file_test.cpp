#include "runtime/train/event_file.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "runtime/train/metrics.h"
#include "tests/support/files.h"

namespace braid::train {
namespace {

// A decoder of its own: bitwise checksum, any field in any order.
std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool odd = ((crc ^ (static_cast<unsigned char>(c) >> bit)) & 1) != 0;
      crc = (crc >> 1) ^ (odd ? 0x82f63b78U : 0U);
    }
  return ~crc;
}

template <class T>
T take(std::string_view& bytes) {
  T value{};
  if (bytes.size() < sizeof(T)) throw std::runtime_error("the bytes end inside a number");
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

std::string_view take_bytes(std::string_view& bytes, std::uint64_t count) {
  if (bytes.size() < count) throw std::runtime_error("the bytes end inside a piece");
  const std::string_view piece = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return piece;
}

std::vector<std::string_view> records_of(std::string_view file) {
  const auto sound = [](std::string_view bytes, std::uint32_t masked) {
    const std::uint32_t rotated = masked - 0xa282ead8U;
    return slow_crc32c(bytes) == (rotated >> 17 | rotated << 15);
  };
  std::vector<std::string_view> records;
  while (!file.empty()) {
    const std::string_view length_bytes = file.substr(0, 8);
    const auto length = take<std::uint64_t>(file);
    EXPECT_TRUE(sound(length_bytes, take<std::uint32_t>(file)));
    records.push_back(take_bytes(file, length));
    EXPECT_TRUE(sound(records.back(), take<std::uint32_t>(file)));
  }
  return records;
}

using Field = std::variant<std::uint64_t, double, float, std::string_view>;

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<std::uint8_t>(bytes);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
}

std::multimap<std::uint64_t, Field> fields_of(std::string_view message) {
  std::multimap<std::uint64_t, Field> fields;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    Field value;
    switch (key & 7) {
      case 0:
        value = take_varint(message);
        break;
      case 1:
        value = take<double>(message);
        break;
      case 2:
        value = take_bytes(message, take_varint(message));
        break;
      case 5:
        value = take<float>(message);
        break;
      default:
        throw std::runtime_error("unknown wire type");
    }
    fields.emplace(key >> 3, value);
  }
  return fields;
}

template <class T>
T field(std::string_view message, std::uint64_t number) {
  const auto fields = fields_of(message);
  const auto found = fields.find(number);
  if (found == fields.end()) throw std::runtime_error("no field " + std::to_string(number));
  return std::get<T>(found->second);
}

// Tag to value, of an event's summary.
std::map<std::string, float> scalars_of(std::string_view event) {
  std::map<std::string, float> scalars;
  for (const auto& [number, value] : fields_of(field<std::string_view>(event, 5))) {
    EXPECT_EQ(number, 1U);
    const auto message = std::get<std::string_view>(value);
    scalars[std::string(field<std::string_view>(message, 1))] = field<float>(message, 2);
  }
  return scalars;
}

std::filesystem::path only_event_file(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents."))
      found.push_back(entry.path());
  EXPECT_EQ(found.size(), 1U);
  return found.empty() ? std::filesystem::path() : found.front();
}

// Vectors of RFC 3720, appendix B.4, and the check value of the CRC catalogue.
TEST(EventFile, ChecksumsOfKnownBytes) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising.push_back(c);
  EXPECT_EQ(crc32c(rising), 0x46dd794eU);
  // 0xe3069283 rotated right by 15 is 0x2507c60d; plus 0xa282ead8.
  EXPECT_EQ(masked_crc32c("123456789"), 0xc78ab0e5U);
}

TEST(EventFile, BytesOfTheFirstRecordByHand) {
  const ScratchFolder folder;
  { const EventFile file(folder / "events", 1.0); }
  using namespace std::string_literals;
  const std::string event =
      "\x09\0\0\0\0\0\0\xf0\x3f"  // field 1, a double: 1.0
      "\x1a\x0d"                  // field 3, 13 bytes
      "brain.Event:2"s;
  const std::string length = little_endian(24, 8);
  EXPECT_EQ(read_bytes(folder / "events"), length + little_endian(masked_crc32c(length), 4) +
                                               event + little_endian(masked_crc32c(event), 4));
}

TEST(EventFile, BytesOfAScalarByHand) {
  const ScratchFolder folder;
  EventFile file(folder / "events", 1.0);
  const std::size_t before = read_bytes(folder / "events").size();
  file.write(300, 1.0, std::array{Scalar{"a", -2.0}});
  using namespace std::string_literals;
  const std::string event =
      "\x09\0\0\0\0\0\0\xf0\x3f"  // 1.0
      "\x10\xac\x02"              // field 2: 300
      "\x2a\x0a"                  // field 5, 10 bytes
      "\x0a\x08"                  // its value, 8 bytes
      "\x0a\x01"
      "a"                 // tag
      "\x15\0\0\0\xc0"s;  // -2.0f
  EXPECT_EQ(read_bytes(folder / "events").substr(before + 12, event.size()), event);
}

TEST(EventFile, AnIndependentDecoderReadsEveryScalar) {
  using namespace braid::literals;
  // Where a varint grows.
  constexpr std::int64_t kSteps[] = {0, 127, 128, 16'383, 16'384, std::int64_t{1} << 40};
  const ScratchFolder folder;
  {
    MetricsWriter writer({.folder = folder.path()});
    for (const std::int64_t step : kSteps)
      writer.write({.step = step,
                    .loss = static_cast<double>(step),
                    .gradient_norm = 0.5,
                    .learning_rate = 0.25,
                    .tokens = 4096,
                    .seconds = Seconds(0.5),
                    .launch = Seconds(0.25),
                    .mfu = 0.125,
                    .allocated = 3_GiB,
                    .predicted = 4_GiB,
                    .predicted_seconds = Seconds(0.75)});
  }
  const std::string bytes = read_bytes(only_event_file(folder.path()));
  const std::vector<std::string_view> events = records_of(bytes);
  ASSERT_EQ(events.size(), 1 + std::size(kSteps));
  EXPECT_EQ(field<std::string_view>(events[0], 3), "brain.Event:2");
  for (std::size_t i = 1; i < events.size(); ++i) {
    const std::int64_t step = kSteps[i - 1];
    EXPECT_EQ(field<std::uint64_t>(events[i], 2), static_cast<std::uint64_t>(step) + 1);
    EXPECT_GT(field<double>(events[i], 1), 1.7e9);  // after 2023
    EXPECT_EQ(scalars_of(events[i]),
              (std::map<std::string, float>{{"train/loss", static_cast<float>(step)},
                                            {"train/gradient_norm", 0.5F},
                                            {"train/learning_rate", 0.25F},
                                            {"speed/tokens_per_second", 8192.0F},
                                            {"speed/seconds", 0.5F},
                                            {"speed/launch_seconds", 0.25F},
                                            {"speed/mfu", 0.125F},
                                            {"speed/predicted_seconds", 0.75F},
                                            {"memory/allocated_gib", 3.0F},
                                            {"memory/predicted_gib", 4.0F}}));
  }
}

TEST(EventFile, AResumedRunSaysWhereItStarts) {
  const ScratchFolder folder;
  { const MetricsWriter writer({.folder = folder.path(), .resumes = true, .first_step = 120}); }
  const std::string bytes = read_bytes(only_event_file(folder.path()));
  const std::vector<std::string_view> events = records_of(bytes);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(field<std::uint64_t>(events[1], 2), 121U);           // counted from 1
  EXPECT_EQ(field<std::string_view>(events[1], 7), "\x08\x01");  // status: start
}

TEST(EventFile, TensorboardCanBeLeftOut) {
  const ScratchFolder folder;
  { const MetricsWriter writer({.folder = folder.path(), .tensorboard = false}); }
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().filename(), kMetricsFile);
}

}  // namespace
}  // namespace braid::train
