#include "runtime/checkpoint/manifest.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "runtime/checkpoint/chunk_hash.h"

namespace braid::checkpoint {

namespace {

constexpr const char* kFormat = "braid.checkpoint";
constexpr int kVersion = 1;
constexpr std::size_t kHashDigits = 32;
constexpr const char* kSelf = "hash_of_this_file";

Json settings_json(const std::vector<Setting>& settings) {
  Json object = Json::object();
  for (const Setting& setting : settings) object[setting.name] = setting.value;
  return object;
}

std::vector<Setting> read_settings(JsonObject object) {
  std::vector<Setting> settings;
  for (const auto& [name, value] : object.entries()) settings.push_back({name, value.string()});
  return settings;
}

// A name that stays in the folder.
std::string read_name(const JsonValue& value) {
  const std::string name = value.string();
  if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..")
    value.fail(fmt::format("'{}' is no file of this folder", name), "restore checkpoint.json");
  return name;
}

StoredFile read_file(const JsonValue& value) {
  JsonObject object(value);
  StoredFile file;
  file.name = read_name(object.at("name"));
  file.bytes = object.integer("bytes", {.low = 1});
  for (const JsonValue& hash : object.array("hashes")) {
    file.hashes.push_back(hash.string());
    if (file.hashes.back().size() != kHashDigits)
      hash.fail("this is no hash of 32 digits", "restore checkpoint.json");
  }
  const std::int64_t chunks = (file.bytes - 1) / kChunkBytes + 1;
  if (std::ssize(file.hashes) != chunks)
    value.fail(fmt::format("{} hashes for {} chunks", file.hashes.size(), chunks),
               "restore checkpoint.json");
  object.finish();
  return file;
}

std::string hash_of_text(std::string_view text) {
  return hash_of(std::as_bytes(std::span(text.data(), text.size())));
}

// Where the digits of the file's own hash begin; npos if there are none.
std::size_t place_of_self(std::string_view text) {
  const std::string key = fmt::format("\"{}\": \"", kSelf);
  const std::size_t found = text.rfind(key);
  if (found == std::string_view::npos) return found;
  const std::size_t begin = found + key.size();
  return begin + kHashDigits <= text.size() ? begin : std::string_view::npos;
}

// The file's own hash is that of its text with zeros in the place of the hash.
void expect_unchanged(std::string text, const std::filesystem::path& path) {
  const std::size_t place = place_of_self(text);
  if (place != std::string::npos) {
    const std::string expected = text.substr(place, kHashDigits);
    text.replace(place, kHashDigits, std::string(kHashDigits, '0'));
    if (hash_of_text(text) == expected) return;
  }
  throw Error({.what = "the file has changed since it was written",
               .where = path.string(),
               .fix = "restore it, or use another checkpoint"});
}

void expect_file(const std::filesystem::path& file, std::int64_t bytes) {
  std::error_code code;
  const bool regular = std::filesystem::is_regular_file(std::filesystem::status(file, code));
  const std::uintmax_t size = regular ? std::filesystem::file_size(file, code) : 0;
  if (regular && !code && std::cmp_equal(size, bytes)) return;
  throw Error(
      {.what = regular ? fmt::format("the file has {} bytes, the checkpoint's has {}", size, bytes)
                       : "a file of the checkpoint is missing",
       .where = file.string(),
       .fix = "restore the file, or use another checkpoint"});
}

}  // namespace

std::int64_t Manifest::bytes() const {
  std::int64_t sum = 0;
  for (const StoredFile& file : files) sum += file.bytes;
  return sum;
}

std::string manifest_text(const Manifest& manifest) {
  Json files = Json::array();
  for (const StoredFile& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"hashes", file.hashes}});
  const Json json = {
      {"format", kFormat},
      {"version", kVersion},
      {"program", manifest.program},
      {"step", manifest.step},
      {"samples", manifest.samples},
      {"tokens", manifest.tokens},
      {"dtype", manifest.dtype},
      {"ranks", manifest.ranks},
      {"identity", settings_json(manifest.identity)},
      {"settings", settings_json(manifest.settings)},
      {"model", to_json(manifest.model)},
      {"plan", manifest.plan.empty() ? Json() : parse_json(manifest.plan, "the plan")},
      {"hash", kHashName},
      {"chunk_bytes", kChunkBytes},
      {"files", std::move(files)},
      {kSelf, std::string(kHashDigits, '0')}};
  std::string text = json.dump(1) + "\n";
  const std::string hash = hash_of_text(text);
  text.replace(place_of_self(text), kHashDigits, hash);
  return text;
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestFile;
  const std::string text = read_text(path);
  const Json json = parse_json(text, path.string());
  JsonObject object{JsonValue(json, path.string())};
  expect_format(object, kFormat, kVersion);
  expect_unchanged(text, path);
  Manifest manifest;
  manifest.program = object.string("program");
  manifest.step = object.integer("step", limits::kCount.or_zero());
  manifest.samples = object.integer("samples", {.low = 0});
  manifest.tokens = object.integer("tokens", {.low = 0});
  const std::vector<std::string> dtypes = {"F64", "F32"};
  manifest.dtype = dtypes[object.at("dtype").choice(dtypes)];
  manifest.ranks = static_cast<int>(object.integer("ranks", {1, 1 << 24}));
  manifest.model = model_from_json(object.at("model").raw(), path.string() + ": model");
  if (const Json& plan = object.at("plan").raw(); !plan.is_null()) manifest.plan = plan.dump(2);
  manifest.identity = read_settings(object.object("identity"));
  manifest.settings = read_settings(object.object("settings"));
  object.at("hash").choice({kHashName});
  object.integer("chunk_bytes", {kChunkBytes, kChunkBytes});
  std::set<std::string> names;
  for (const JsonValue& value : object.array("files")) {
    manifest.files.push_back(read_file(value));
    if (!names.insert(manifest.files.back().name).second)
      value.fail("the file is listed twice", "restore checkpoint.json");
  }
  object.string(kSelf);
  object.finish();
  for (const StoredFile& file : manifest.files) expect_file(folder / file.name, file.bytes);
  return manifest;
}

}  // namespace braid::checkpoint
