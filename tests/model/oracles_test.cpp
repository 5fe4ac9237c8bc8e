// Configs as transformers writes them, beside the parameters it made of them: what is read from the
// one must count the other.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/model/model.h"

namespace braid {
namespace {

// The header of a safetensors file: its length in 8 bytes, then JSON.
Json tensors_of(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof(length));
  return parse_json(std::string_view(text).substr(sizeof(length), length), file.string());
}

std::int64_t num_values(const Json& tensors, const std::string& prefix) {
  std::int64_t total = 0;
  for (const auto& [name, tensor] : tensors.items()) {
    if (!name.starts_with(prefix)) continue;
    std::int64_t values = 1;
    for (const Json& size : tensor["shape"]) values *= size.get<std::int64_t>();
    total += values;
  }
  return total;
}

TEST(Oracles, HaveAsManyParametersAsTheirConfigSays) {
  int num_oracles = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(BRAID_SOURCE_DIR) / "tests" / "models" / "oracles")) {
    if (!entry.is_directory()) continue;
    const Model model = read_model(entry.path() / "config.json");
    const Json tensors = tensors_of(entry.path() / "oracle.safetensors");
    EXPECT_EQ(num_values(tensors, "param."), parameters(model)) << model.name;
    EXPECT_EQ(num_values(tensors, "grad."), parameters(model)) << model.name;
    if (tensors.contains("input_ids")) {
      EXPECT_EQ(tensors["input_ids"]["shape"][1], model.sequence) << model.name;
    }
    EXPECT_EQ(tensors["logits"]["shape"].back(), model.types.back().shape.vocab) << model.name;
    ++num_oracles;
  }
  EXPECT_GE(num_oracles, 19);
}

}  // namespace
}  // namespace braid
