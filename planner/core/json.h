#pragma once
// The one boundary where JSON comes in: strict, with a path in every message. Unknown keys are
// errors that name the nearest known key; so are duplicate keys, wrong types and numbers out of
// range.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/core/limits.h"

namespace braid {

using Json = nlohmann::ordered_json;

// Parses text; `source` (a file name) stands in every message.
Json parse_json(std::string_view text, const std::string& source);
// Reads and parses a file.
Json read_json(const std::filesystem::path& file);

// A JSON value with its path: "plan.json: stages[2].layers".
class JsonValue {
 public:
  JsonValue(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  std::int64_t integer(IntRange range = {}) const;
  double number(double low = -std::numeric_limits<double>::max(),
                double high = std::numeric_limits<double>::max()) const;
  double number(const RealLimit& limit) const { return number(limit.low, limit.high); }
  bool boolean() const;
  std::string string() const;
  // One of `choices`; the index of the match.
  std::size_t choice(const std::vector<std::string>& choices) const;
  std::vector<JsonValue> array() const;

  const Json& raw() const { return *value_; }
  const std::string& path() const { return path_; }
  [[noreturn]] void fail(std::string what, std::string fix) const;

 private:
  const Json* value_;
  std::string path_;
};

// An object whose keys must all be asked for: finish() rejects what nobody read.
class JsonObject {
 public:
  explicit JsonObject(const JsonValue& value);

  JsonValue at(const std::string& key);
  std::optional<JsonValue> find(const std::string& key);
  bool has(const std::string& key) const;

  std::int64_t integer(const std::string& key, IntRange range = {});
  std::int64_t integer_or(const std::string& key, std::int64_t fallback, IntRange range = {});
  double number(const std::string& key, const RealLimit& limit);
  double number_or(const std::string& key, double fallback, const RealLimit& limit);
  std::string string(const std::string& key);
  std::string string_or(const std::string& key, std::string fallback);
  bool boolean_or(const std::string& key, bool fallback);
  JsonObject object(const std::string& key);
  std::vector<JsonValue> array(const std::string& key);

  // Every key with its value, all marked as read.
  std::vector<std::pair<std::string, JsonValue>> entries();

  // Throws on a key that was never asked for.
  void finish() const;
  // Accepts whatever else is there: for foreign formats such as a Hugging Face config.json.
  void ignore_rest() {}

  const std::string& path() const { return value_.path(); }
  [[noreturn]] void fail(std::string what, std::string fix) const {
    value_.fail(std::move(what), std::move(fix));
  }

 private:
  JsonValue child(const std::string& key, const Json& value) const;

  JsonValue value_;
  std::vector<std::string> known_;
};

// Checks "format" and "version" of one of Braid's own files.
void expect_format(JsonObject& object, const std::string& format, int version);

}  // namespace braid
