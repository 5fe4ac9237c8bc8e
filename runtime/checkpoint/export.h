#pragma once
// A checkpoint as a published model: the folder that Hugging Face transformers loads.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/model/model.h"
#include "runtime/checkpoint/tensor_files.h"

namespace braid::checkpoint {

struct ExportOptions {
  std::filesystem::path out;            // made; must not hold files
  std::optional<at::ScalarType> dtype;  // empty: as stored
  std::int64_t max_shard =
      5'000'000'000;   // bytes of tensors in a file; a larger tensor stands alone
  std::string config;  // the text of config.json
};

struct Exported {
  std::vector<std::filesystem::path> files;
  std::int64_t parameters = 0, bytes = 0;
};

// Writes every weight once, a tied one under the name that transformers keeps, and config.json
// last.
Exported export_huggingface(const TensorFiles& files, const Model& model,
                            const ExportOptions& options);

}  // namespace braid::checkpoint
