#pragma once
// TensorBoard's event files, written without TensorFlow or protobuf.
//
// A file is a row of records; each holds one Event message. All numbers are little-endian:
//   uint64 length, uint32 masked CRC-32C of the length, the message, uint32 masked CRC-32C of it.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/train/record_file.h"

namespace braid::train {

std::uint32_t crc32c(std::string_view bytes);
// A record's checksum: rotated and shifted, since a CRC of bytes that hold their own CRC is weak.
std::uint32_t masked_crc32c(std::string_view bytes);

struct Scalar {
  std::string_view tag;
  double value = 0;
};

class EventFile {
 public:
  // Starts the file with its version. `wall_time`: seconds since 1970.
  EventFile(const std::filesystem::path& file, double wall_time);

  // All scalars of one step as one event.
  void write(std::int64_t step, double wall_time, std::span<const Scalar> scalars);
  // Tells TensorBoard that a run starts again at `step`: it forgets what other files of the folder
  // say about this step and later ones.
  void restart(std::int64_t step, double wall_time);
  const RecordFile& file() const { return file_; }

 private:
  void record(const std::string& event);

  RecordFile file_;
};

}  // namespace braid::train
