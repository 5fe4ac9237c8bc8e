// The one boundary where JSON comes in: what it refuses.

#include "planner/core/json.h"

#include <gtest/gtest.h>

#include "planner/core/error.h"

namespace braid {
namespace {

template <class Function>
Mistake mistake_of(Function function, const std::string& fact) {
  try {
    function();
  } catch (const Error& error) {
    return error.mistake();
  }
  ADD_FAILURE() << fact << " went unnoticed";
  return {};
}

struct TextCase {
  const char* fact;
  std::string text;
  const char* what;
  const char* where;
};

const TextCase kBadTexts[] = {
    {"nothing", "", "not valid JSON", "x.json: line 1, column 1"},
    {"a truncated object", "{\"a\": 1,\n\"b\": ", "not valid JSON", "x.json: line 2, column 6"},
    {"a trailing comma", "[1, 2,]", "not valid JSON", "x.json: line 1, column 7"},
    {"a comment", "[1 /* one */]", "not valid JSON", "x.json: line 1, column 4"},
    {"two values", "{} {}", "not valid JSON", "x.json: line 1, column 4"},
    {"a bare NaN", "[NaN]", "it has no NaN and no infinity", "x.json: line 1, column 2"},
    {"an infinity", "[-Infinity]", "it has no NaN and no infinity", "x.json: line 1, column 3"},
    {"bytes that are no UTF-8", "[\"\xff\"]", "not valid JSON", "x.json: line 1, column 3"},
    {"a duplicate key", R"({"a": 1, "b": {"a": 2}, "a": 3})",
     "the key 'a' stands twice in one object", "x.json"},
    {"a duplicate key further in", R"({"a": [{"b": 1, "b": 1}]})", "the key 'b' stands twice",
     "x.json"},
    {"a number beyond doubles", "[1e999]", "too large", "x.json"},
    {"nesting without an end", std::string(100'000, '['), "deeper than 64 levels", "x.json"},
    {"one level too many", std::string(66, '[') + std::string(66, ']'), "deeper than 64", "x.json"},
};

TEST(Json, RefusesBadText) {
  for (const TextCase& c : kBadTexts) {
    const Mistake found = mistake_of([&] { parse_json(c.text, "x.json"); }, c.fact);
    EXPECT_NE(found.what.find(c.what), std::string::npos) << c.fact << ": " << found.what;
    EXPECT_EQ(found.where, c.where) << c.fact;
    EXPECT_FALSE(found.fix.empty()) << c.fact;
  }
}

TEST(Json, TakesEqualKeysOfDifferentObjects) {
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": {"a": 2}}])", "x.json"));
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "x.json"));
}

using Read = void (*)(JsonObject&);
struct ValueCase {
  const char* fact;
  const char* value;  // of the key "k"
  Read read;
  const char* what;
};

constexpr Read kInteger = [](JsonObject& o) { o.integer("k"); };
constexpr Read kSmall = [](JsonObject& o) { o.integer("k", {.low = 1, .high = 8}); };
constexpr Read kNumber = [](JsonObject& o) { o.at("k").number(); };
constexpr Read kFraction = [](JsonObject& o) { o.at("k").number(0, 1); };
constexpr Read kString = [](JsonObject& o) { o.string("k"); };
constexpr Read kBoolean = [](JsonObject& o) { o.boolean_or("k", false); };
constexpr Read kObject = [](JsonObject& o) { o.object("k"); };
constexpr Read kArray = [](JsonObject& o) { o.array("k"); };
constexpr Read kChoice = [](JsonObject& o) { o.at("k").choice({"none", "full"}); };

constexpr ValueCase kBadValues[] = {
    {"a fraction as an integer", "1.5", kInteger, "expected a whole number, found 1.5"},
    {"a float as an integer", "1.0", kInteger, "expected a whole number"},
    {"text as an integer", "\"1\"", kInteger, "expected a whole number, found \"1\""},
    {"more than 63 bits", "9223372036854775808", kInteger, "9223372036854775808 is out of range"},
    {"more than 64 bits", "18446744073709551616", kInteger, "is out of range"},
    {"far more than 64 bits", "1e308", kInteger, "1e+308 is out of range"},
    {"below the range", "0", kSmall, "0 is out of range"},
    {"above the range", "9", kSmall, "9 is out of range"},
    {"null as a number", "null", kNumber, "expected a number, found null"},
    {"a number above its range", "1.5", kFraction, "1.5 is out of range"},
    {"a number as text", "1", kString, "expected a string"},
    {"a number as a flag", "1", kBoolean, "expected true or false"},
    {"a list as an object", "[]", kObject, "expected an object"},
    {"an object as a list", "{}", kArray, "expected a list"},
    {"a misspelt choice", "\"ful\"", kChoice, "did you mean 'full'"},
};

TEST(Json, RefusesBadValues) {
  for (const ValueCase& c : kBadValues) {
    const Json json = parse_json(std::string("{\"k\": ") + c.value + "}", "x.json");
    JsonObject object{JsonValue(json, "x.json")};
    const Mistake found = mistake_of([&] { c.read(object); }, c.fact);
    EXPECT_NE(found.what.find(c.what), std::string::npos) << c.fact << ": " << found.what;
    EXPECT_EQ(found.where, "x.json: k") << c.fact;
    EXPECT_FALSE(found.fix.empty()) << c.fact;
  }
}

TEST(Json, SaysHowToWriteAWholeNumber) {
  const auto fix_of = [](const char* value) {
    const Json json = parse_json(value, "x.json");
    return mistake_of([&] { JsonValue(json, "x.json").integer({.low = 1, .high = 8}); }, value).fix;
  };
  EXPECT_EQ(fix_of("28.0"), "write 28, without a point");
  EXPECT_EQ(fix_of("1.5"), "write a whole number from 1 to 8");
  EXPECT_EQ(fix_of("1e308"), "write a whole number from 1 to 8");
  EXPECT_EQ(fix_of("9223372036854775808"), "write a whole number from 1 to 8");
  EXPECT_EQ(fix_of("\"1\""), "write a whole number without quotes");
}

TEST(Json, TellsAConfigFromABraidFile) {
  const Json json = parse_json(R"({"model_type": "llama"})", "x.json");
  JsonObject object{JsonValue(json, "x.json")};
  const Mistake found = mistake_of([&] { expect_format(object, "braid.cluster", 1); }, "a config");
  EXPECT_EQ(found.what, "this file is a Hugging Face config, not a 'braid.cluster'");
}

TEST(Json, TakesTheBoundsOfARange) {
  const Json json = parse_json(
      R"({"low": -9223372036854775808, "high": 9223372036854775807, "one": 1, "whole": 3})", "x");
  JsonObject object{JsonValue(json, "x")};
  EXPECT_EQ(object.integer("low"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(object.integer("high"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(object.integer("one", {.low = 1, .high = 1}), 1);
  EXPECT_EQ(object.number("whole", limits::kFigure), 3.0);
  EXPECT_EQ(object.string_or("absent", "fallback"), "fallback");
  EXPECT_EQ(object.integer_or("absent", 7), 7);
  EXPECT_NO_THROW(object.finish());
}

TEST(Json, NamesUnknownAndMissingKeys) {
  const Json json = parse_json(R"({"stages": [{"layrs": 1}]})", "x.json");
  JsonObject top{JsonValue(json, "x.json")};
  JsonObject stage{top.array("stages").front()};
  const Mistake missing = mistake_of([&] { stage.integer("layers"); }, "a missing key");
  EXPECT_EQ(missing.what, "the key 'layers' is missing");
  EXPECT_EQ(missing.where, "x.json: stages[0]");
  EXPECT_NE(missing.fix.find("'layrs' a misspelling"), std::string::npos);
  const Mistake unknown = mistake_of([&] { stage.finish(); }, "an unknown key");
  EXPECT_EQ(unknown.what, "unknown key 'layrs'; did you mean 'layers'?");
  EXPECT_NO_THROW(top.finish());
}

TEST(Json, ChecksFormatAndVersion) {
  const auto check = [](const char* text) {
    const Json json = parse_json(text, "x.json");
    JsonObject object{JsonValue(json, "x.json")};
    expect_format(object, "braid.plan", 2);
  };
  EXPECT_NO_THROW(check(R"({"format": "braid.plan", "version": 2})"));
  EXPECT_THROW(check(R"({"format": "braid.model", "version": 2})"), Error);
  EXPECT_THROW(check(R"({"format": "braid.plan", "version": 3})"), Error);
  EXPECT_THROW(check(R"({"format": "braid.plan"})"), Error);
  EXPECT_THROW(check("[]"), Error);
}

}  // namespace
}  // namespace braid
