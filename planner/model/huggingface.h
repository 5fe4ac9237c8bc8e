#pragma once
// Between a Hugging Face config.json and a Model: a reader that knows the format's habits, and one
// function for each family. A new family is one function and one row of the table below it.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/core/json.h"
#include "planner/model/model.h"

namespace braid::huggingface {

double positive(const JsonValue& value);

struct Rotary {
  double base = 0;
  RotaryScaling scaling = {};
};

// A config as downloaded: unknown keys are tolerated, null means absent, and what a family needs is
// checked where it is read.
class Config {
 public:
  Config(const Json& json, const std::string& source);

  std::int64_t size(const std::string& key);  // needed, positive
  std::int64_t size_or(const std::string& key, std::int64_t fallback);
  std::int64_t count_or(const std::string& key, std::int64_t fallback);  // may be zero
  std::vector<std::int64_t> sizes(const std::string& key);  // needed, a list of positive numbers
  double number_or(const std::string& key, double fallback);
  double positive_or(const std::string& key, double fallback);
  bool flag_or(const std::string& key, bool fallback);
  std::string string_or(const std::string& key, const std::string& fallback);

  bool has(const std::string& key) const { return object_.has(key); }
  // Whichever of two spellings the file uses; the first when neither is there.
  std::string either(const std::string& key, const std::string& other) const;

  // Width of one head, and an Error unless the heads divide the hidden size.
  std::int64_t head_dim(std::int64_t hidden, const std::string& heads_key);
  // "rope_theta" and "rope_scaling", or both inside "rope_parameters" (transformers 5).
  Rotary rotary(double usual_base);
  // "gelu", "gelu_new" and its kin, or "relu"; with a gate also "silu", but no "relu".
  Activation plain_activation(const std::string& key, const std::string& fallback);
  Activation gated_activation(const std::string& key, const std::string& fallback);
  int layers(const std::string& key);
  int layers_or(const std::string& key, int fallback);
  // Classes of a classifier: "num_labels", the size of "id2label", or the format's default of 2.
  std::int64_t labels();
  // The length to train at: "braid_sequence" where given, else `usual`.
  std::int64_t sequence(std::int64_t usual) { return size_or("braid_sequence", usual); }

  [[noreturn]] void fail(const std::string& key, std::string what, std::string fix) const;

 private:
  // Absent and null are the same to Hugging Face.
  std::optional<JsonValue> find(const std::string& key);

  JsonObject object_;
};

// Layers of one type in a row. Types come in the order of their runs.
struct Run {
  LayerType type;
  int count = 1;
};
Model assemble(const std::vector<Run>& runs);

// The longest sequence trained at unless asked: long-context configs promise far more positions
// than their bulk of training used.
inline constexpr std::int64_t kLongestUsual = 8192;

struct Family {
  const char* model_type;
  Model (*read)(Config&);
};
std::span<const Family> decoders();
std::span<const Family> encoders();       // and what has an encoder: T5
std::vector<std::string> family_names();  // of both, ascending

}  // namespace braid::huggingface
