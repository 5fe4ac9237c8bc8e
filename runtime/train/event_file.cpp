#include "runtime/train/event_file.h"

#include <array>
#include <bit>

namespace braid::train {

namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, lowest bit first

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ kPolynomial : crc >> 1;
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

template <class T>
std::string fixed(T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  return {bytes.data(), bytes.size()};
}

// Protobuf's wire format: a field is its number and type as a varint, then its value.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>((value & 0x7f) | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string key(std::uint64_t field, Wire type) {
  return varint(field << 3 | static_cast<std::uint64_t>(type));
}
std::string integer_field(std::uint64_t field, std::int64_t value) {
  return key(field, Wire::varint) + varint(static_cast<std::uint64_t>(value));
}
std::string double_field(std::uint64_t field, double value) {
  return key(field, Wire::fixed64) + fixed(value);
}
std::string float_field(std::uint64_t field, float value) {
  return key(field, Wire::fixed32) + fixed(value);
}
std::string bytes_field(std::uint64_t field, std::string_view value) {
  return key(field, Wire::bytes) + varint(value.size()) + std::string(value);
}

// Field numbers of event.proto and summary.proto.
constexpr std::uint64_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr std::uint64_t kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;
constexpr std::uint64_t kSessionStatus = 1;
constexpr std::int64_t kSessionStart = 1;

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8;
}

EventFile::EventFile(const std::filesystem::path& file, double wall_time) : file_(file) {
  record(double_field(kWallTime, wall_time) + bytes_field(kFileVersion, "brain.Event:2"));
}

void EventFile::write(std::int64_t step, double wall_time, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars)
    summary +=
        bytes_field(kSummaryValue, bytes_field(kValueTag, scalar.tag) +
                                       float_field(kValueSimple, static_cast<float>(scalar.value)));
  record(double_field(kWallTime, wall_time) + integer_field(kStep, step) +
         bytes_field(kSummary, summary));
}

void EventFile::restart(std::int64_t step, double wall_time) {
  record(double_field(kWallTime, wall_time) + integer_field(kStep, step) +
         bytes_field(kSessionLog, integer_field(kSessionStatus, kSessionStart)));
}

void EventFile::record(const std::string& event) {
  const std::string length = fixed(std::uint64_t{event.size()});
  // One write, so that a reader beside us sees whole records.
  file_.append(length + fixed(masked_crc32c(length)) + event + fixed(masked_crc32c(event)));
}

}  // namespace braid::train
