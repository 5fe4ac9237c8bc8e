#pragma once
// checkpoint.json: what a checkpoint holds, of which run, and the hashes of its files. It is
// written last, so that a folder with it is a whole checkpoint.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "planner/model/model.h"

namespace braid::checkpoint {

inline constexpr const char* kManifestFile = "checkpoint.json";

// A file of the checkpoint's folder.
struct StoredFile {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::string> hashes;  // of its chunks (chunk_hash.h), in order
  bool operator==(const StoredFile&) const = default;
};

// A setting of the run as text: "learning_rate.peak" → "0.0003".
struct Setting {
  std::string name, value;
  bool operator==(const Setting&) const = default;
};

struct Manifest {
  std::string program;       // "braid 0.1.0"
  std::int64_t step = 0;     // steps that were taken
  std::int64_t samples = 0;  // that were consumed by them
  std::int64_t tokens = 0;
  std::string dtype;  // of weights and moments, as safetensors spells it: that of optimizer states
  int ranks = 0;      // that wrote it
  Model model;
  std::string plan;  // a plan file's text, for people: any plan of the model may go on; empty: none
  // What decides which samples come when, and the weights at the beginning: a run that goes on must
  // have the same.
  std::vector<Setting> identity;
  // Optimizer and schedule: may change from one start to the next.
  std::vector<Setting> settings;
  std::vector<StoredFile> files;

  std::int64_t bytes() const;  // of all files
};

// The file's text, which ends with a hash of itself.
std::string manifest_text(const Manifest& manifest);
// Throws an Error that names the key, or the file of the folder that is missing or has another
// size.
Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace braid::checkpoint
