// The table of a Hugging Face config's keys: what drives the readers, what is refused, and what is
// told.

#include "planner/model/huggingface_keys.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/model/huggingface.h"
#include "planner/model/model.h"

namespace braid::huggingface {
namespace {

// A small model of the family by the keys that have no default.
Json smallest(const std::string& family) {
  Json json = {{"model_type", family}};
  for (const ConfigKey& key : keys_of(family))
    if (key.use == KeyUse::read && key.usual.empty() && key.name != "model_type")
      json[std::string(key.name)] = key.name.find("head") == std::string_view::npos ? 8 : 4;
  if (family == "swin") json.update(Json({{"depths", {1, 1}}, {"num_heads", {1, 1}}}));
  for (const char* key : {"num_key_value_heads", "pad_token_id"})
    if (find_key(family, key) != nullptr) json[key] = nullptr;
  return json;
}

Model read(const Json& json) { return model_from_json(json, "config.json"); }

TEST(ConfigKeys, OfEveryFamilyMakeAModel) {
  for (const std::string& family : family_names())
    EXPECT_NO_THROW(read(smallest(family))) << family;
}

TEST(ConfigKeys, StandOnceInAFamily) {
  for (const std::string& family : family_names()) {
    std::set<std::string_view> names;
    for (const ConfigKey& key : keys_of(family))
      EXPECT_TRUE(names.insert(key.name).second) << family << ": " << key.name;
  }
}

// No reader accepts a list in a list; one that does not look would.
TEST(ConfigKeys, ThatAreReadAreLookedAt) {
  for (const std::string& family : family_names())
    for (const ConfigKey& key : keys_of(family)) {
      if (key.use != KeyUse::read && key.use != KeyUse::alias) continue;
      Json json = smallest(family);
      if (key.use == KeyUse::alias) json.erase(std::string(key.usual));
      if (key.name == "sliding_window") json["use_sliding_window"] = true;
      json[std::string(key.name)] = Json::array({Json::array()});
      const auto look = [&] {
        read(json);
        config_warnings(json, "config.json");
      };
      EXPECT_THROW(look(), Error) << family << ": " << key.name;
    }
}

TEST(ConfigKeys, ThatAreFixedAreRefusedUnlessTheyHaveTheirDefault) {
  int num_keys = 0;
  for (const std::string& family : family_names())
    for (const ConfigKey& key : keys_of(family)) {
      if (key.use != KeyUse::fixed) continue;
      const std::string name(key.name);
      const Json usual = Json::parse(key.usual);
      Json json = smallest(family);
      json[name] = usual;
      EXPECT_NO_THROW(read(json)) << family << ": " << name;
      json[name] = usual.is_boolean() ? Json(!usual.get<bool>()) : Json("another");
      try {
        read(json);
        ADD_FAILURE() << family << ": " << name << " went unnoticed";
      } catch (const Error& error) {
        EXPECT_EQ(error.mistake().where, "config.json: " + name);
        ++num_keys;
      }
    }
  EXPECT_GE(num_keys, 13 * 10);
}

TEST(ConfigWarnings, NameKeysThatAreNotKnown) {
  Json json = smallest("llama");
  json["layer_norm_kind"] = "other";
  json["rope_scaling"] = {{"rope_type", "default"}, {"attention_factor", 2}};
  EXPECT_EQ(config_warnings(json, "c.json"),
            std::vector<std::string>{"c.json: keys that are not known for llama are ignored: "
                                     "layer_norm_kind, rope_scaling.attention_factor"});
}

TEST(ConfigWarnings, NameRatesOfDropoutThatAreNotZero) {
  Json json = smallest("gpt2");
  json.update(Json({{"attn_pdrop", 0.25}, {"embd_pdrop", 0.0}}));
  EXPECT_EQ(config_warnings(json, "c.json"),
            std::vector<std::string>{"c.json: dropout is not taken from the config but from train "
                                     "--dropout: attn_pdrop 0.25"});
}

TEST(ConfigWarnings, NameAnotherClassThanTheOneTrained) {
  Json json = smallest("bert");
  json["architectures"] = {"BertForPreTraining"};
  EXPECT_TRUE(config_warnings(json, "c.json").empty());
  json["architectures"] = {"BertForQuestionAnswering"};
  EXPECT_EQ(config_warnings(json, "c.json"),
            std::vector<std::string>{"c.json: the model is read as BertForMaskedLM, not as the "
                                     "BertForQuestionAnswering that \"architectures\" names"});
}

TEST(ConfigWarnings, AreNoneForShippedModels) {
  int num_models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(BRAID_SOURCE_DIR) / "configs" / "models")) {
    EXPECT_TRUE(config_warnings(read_json(entry.path()), entry.path().string()).empty())
        << entry.path();
    ++num_models;
  }
  EXPECT_GE(num_models, 20);
}

// A list of keys as docs/config-keys.md shows it.
std::string listed(const std::vector<ConfigKey>& keys) {
  std::string read, refused, rates, other;
  const auto add = [](std::string& list, const std::string& entry) {
    list += (list.empty() ? "" : ", ") + entry;
  };
  std::map<std::string_view, std::string> harmless;
  for (const ConfigKey& key : keys) {
    const std::string name = fmt::format("`{}`", key.name);
    const std::string with_usual = fmt::format("{} ({})", name, key.usual);
    switch (key.use) {
      case KeyUse::read:
        add(read, key.usual.empty() ? name : with_usual);
        break;
      case KeyUse::alias:
        add(other, fmt::format("{} for `{}`", name, key.usual));
        break;
      case KeyUse::harmless:
        add(harmless[key.reason], name);
        break;
      case KeyUse::dropout:
        add(rates, name);
        break;
      case KeyUse::fixed:
        add(refused, with_usual);
        break;
    }
  }
  std::string text;
  if (!read.empty()) text += fmt::format("\nRead (default): {}.\n", read);
  if (!other.empty()) text += fmt::format("\nOther spellings: {}.\n", other);
  if (!refused.empty()) text += fmt::format("\nRefused unless they are: {}.\n", refused);
  if (!rates.empty()) text += fmt::format("\nDropout, a warning: {}.\n", rates);
  if (!harmless.empty()) text += "\nHarmless:\n\n";
  for (const auto& [reason, names] : harmless) text += fmt::format("- {}: {}\n", reason, names);
  return text;
}

bool same(const ConfigKey& a, const ConfigKey* b) {
  return b != nullptr && a.use == b->use && a.usual == b->usual && a.reason == b->reason;
}

// Which families treat a key alike: all, those without experts, or fewer.
enum class Reach { all, dense, some };
Reach reach_of(const ConfigKey& key) {
  std::size_t alike = 0;
  for (const std::string& family : family_names())
    if (same(key, find_key(family, key.name))) ++alike;
  if (alike == family_names().size()) return Reach::all;
  const bool but_mixtral = !same(key, find_key("mixtral", key.name));
  return but_mixtral && alike + 1 == family_names().size() ? Reach::dense : Reach::some;
}

std::string listed(const std::string& family, Reach reach) {
  std::vector<ConfigKey> keys;
  for (const ConfigKey& key : keys_of(family))
    if (reach_of(key) == reach) keys.push_back(key);
  return listed(keys);
}

// BRAID_WRITE_DOCS=1 writes the document in place of comparing it.
TEST(ConfigKeys, AreThoseOfTheDocument) {
  const auto file = std::filesystem::path(BRAID_SOURCE_DIR) / "docs" / "config-keys.md";
  std::string text =
      "# Keys of Hugging Face configs\n\n"
      "What Braid does with each key of a `config.json`: those that the config classes of "
      "transformers 5.17\nknow and those of older files. A key that is not listed is ignored with "
      "a warning that names it.\n\nThis list is written by "
      "`BRAID_WRITE_DOCS=1 build/tests/model_test --gtest_filter=ConfigKeys.*`.\n";
  text += "\n## All families\n" + listed("llama", Reach::all);
  text += "\n## All but mixtral\n" + listed("llama", Reach::dense);
  for (const std::string& family : family_names())
    text += fmt::format("\n## {}\n", family) + listed(family, Reach::some);
  if (std::getenv("BRAID_WRITE_DOCS") != nullptr) std::ofstream(file) << text;
  EXPECT_EQ(read_text(file), text) << "write it anew: BRAID_WRITE_DOCS=1";
}

}  // namespace
}  // namespace braid::huggingface
