#pragma once
// Between a Hugging Face config.json and a Model: a reader that knows the format's habits, and one
// function for each family. A new family is one function and one row of the table below it.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/json.h"
#include "planner/model/model.h"

namespace braid::huggingface {

double positive(const JsonValue& value);

// Keys of the rotary dictionaries that no reader knows, as "rope_parameters.attention_factor".
std::vector<std::string> unknown_rotary_keys(JsonObject& config);

struct Rotary {
  double base = 0;
  RotaryScaling scaling = {};
};

// A config.json as downloaded. Only keys that the family's table lists as `read` can be asked for;
// an absent one has the table's default.
class Config {
 public:
  // Refuses keys that ask for what the family's layers here do not have.
  Config(const Json& json, const std::string& source, std::string_view family);

  // For these, null is absent.
  std::int64_t size(const std::string& key);                // positive
  std::int64_t count(const std::string& key);               // may be zero
  std::vector<std::int64_t> sizes(const std::string& key);  // a list of positive numbers
  double number(const std::string& key);                    // may be zero
  double positive_number(const std::string& key);
  bool flag(const std::string& key);
  std::string text(const std::string& key);
  int layers(const std::string& key);
  // For these, null has a meaning of its own: no value.
  std::optional<std::int64_t> optional_size(const std::string& key);
  std::optional<std::string> optional_text(const std::string& key);
  std::optional<bool> optional_flag(const std::string& key);

  // Width of one head, and an Error unless the heads divide the hidden size.
  std::int64_t head_dim(std::int64_t hidden, const std::string& heads_key);
  // "rope_theta" and "rope_scaling", or both inside "rope_parameters" (transformers 5).
  Rotary rotary();
  // Row of the embedding that padding tokens read: "pad_token_id", counted from the table's end
  // where negative; kNoPadding where null.
  std::int64_t padding_id(std::int64_t vocab);
  // Kind of each layer by "layer_types": whether it attends within the sliding window. Empty where
  // the config has no such list.
  std::vector<bool> windowed_layers(int layers);
  // "gelu", "gelu_new" and its kin, or "relu"; with a gate also "silu", but no "relu".
  Activation plain_activation(const std::string& key);
  Activation gated_activation(const std::string& key);
  Activation activation_named(const std::string& name, bool gated, const std::string& key) const;
  // Classes of a classifier: the size of "id2label", else "num_labels", else the format's 2.
  std::int64_t labels();
  // The side of a square image or patch: a number, or a list of two equal ones.
  std::int64_t side(const std::string& key);
  // The length to train at: "braid_sequence" where given, else `usual`.
  std::int64_t sequence(std::int64_t usual);

  [[noreturn]] void fail(const std::string& key, std::string what, std::string fix) const;

 private:
  // The file's value, else the table's default; either may be null. Nothing: the key is needed and
  // absent.
  std::optional<JsonValue> find(const std::string& key);
  // The same with null taken as absent.
  std::optional<JsonValue> find_value(const std::string& key);
  JsonValue at(const std::string& key);
  void refuse_fixed_keys();

  JsonObject object_;
  std::string family_;
  std::map<std::string, Json> usual_;  // parsed defaults, which returned values point to
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
