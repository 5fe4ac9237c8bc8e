#include "planner/core/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/text.h"

namespace braid {

namespace {

constexpr int kMaxDepth = 64;  // deeper nesting is never ours; refuses stack exhaustion

// How to write a number with a point: 28.0 is 28 but for its form.
std::string whole_number_fix(const Json& value, const std::string& otherwise) {
  const auto number = value.get<double>();
  return number == std::trunc(number) ? fmt::format("write {:.0f}, without a point", number)
                                      : otherwise;
}

// Other programs write what JSON has no numbers for.
bool is_no_number(std::string_view text, std::size_t byte) {
  constexpr std::string_view kNames[] = {"NaN", "Infinity", "-Infinity", "nan", "inf", "-inf"};
  const std::size_t begin = std::min(text.size(), byte > 2 ? byte - 2 : 0);
  return std::ranges::any_of(kNames, [&](std::string_view name) {
    return text.substr(begin, name.size() + 3).find(name) != std::string_view::npos;
  });
}

std::string position(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? byte : byte - newline - 1;
  return fmt::format("line {}, column {}", line, std::max<std::size_t>(column, 1));
}

// Rejects duplicate keys and runaway nesting while the parser walks the text.
class Guard {
 public:
  explicit Guard(const std::string& source) : source_(source) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth)
      throw Error({.what = fmt::format("JSON nested deeper than {} levels", kMaxDepth),
                   .where = source_,
                   .fix = "remove the surplus brackets"});
    switch (event) {
      case Json::parse_event_t::object_start:
        keys_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      case Json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys_.back().insert(key).second)
          throw Error({.what = fmt::format("the key '{}' stands twice in one object", key),
                       .where = source_,
                       .fix = "keep one of the two"});
        break;
      }
      case Json::parse_event_t::array_start:
      case Json::parse_event_t::array_end:
      case Json::parse_event_t::value:
        break;
    }
    return true;
  }

 private:
  const std::string& source_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  try {
    return Json::parse(text.begin(), text.end(), Guard(source));
  } catch (const Json::parse_error& error) {
    if (is_no_number(text, error.byte))
      throw Error({.what = "this is not valid JSON: it has no NaN and no infinity",
                   .where = fmt::format("{}: {}", source, position(text, error.byte)),
                   .fix = "write a number there, or null where there is none"});
    throw Error({.what = "this is not valid JSON",
                 .where = fmt::format("{}: {}", source, position(text, error.byte)),
                 .fix = text.empty() ? "the file is empty: write it again"
                                     : "check for a missing comma, quote or bracket just before "
                                       "that place, or a truncated file"});
  } catch (const Json::out_of_range& error) {
    throw Error({.what = "a number is too large to be read",
                 .where = source,
                 .fix = "write numbers that fit in a double"});
  }
}

Json read_json(const std::filesystem::path& file) {
  return parse_json(read_text(file), file.string());
}

void JsonValue::fail(std::string what, std::string fix) const {
  throw Error({.what = std::move(what), .where = path_, .fix = std::move(fix)});
}

std::int64_t JsonValue::integer(IntRange range) const {
  std::int64_t n = 0;
  bool whole = false;
  if (value_->is_number_unsigned()) {
    const auto u = value_->get<std::uint64_t>();
    whole = u <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    n = whole ? static_cast<std::int64_t>(u) : 0;
  } else if (value_->is_number_integer()) {
    n = value_->get<std::int64_t>();
    whole = true;
  }
  const std::string found = value_->dump().substr(0, 40);
  const std::string fix = fmt::format("write a whole number from {} to {}", range.low, range.high);
  if (!whole && value_->is_number_float() && std::abs(value_->get<double>()) < 1e15)
    fail(fmt::format("expected a whole number, found {}", found), whole_number_fix(*value_, fix));
  if (!whole && value_->is_number()) fail(fmt::format("{} is out of range", found), fix);
  if (!whole)
    fail(fmt::format("expected a whole number, found {}", found),
         "write a whole number without quotes");
  if (n < range.low || n > range.high) fail(fmt::format("{} is out of range", n), fix);
  return n;
}

double JsonValue::number(double low, double high) const {
  if (!value_->is_number())
    fail(fmt::format("expected a number, found {}", value_->dump().substr(0, 40)),
         "write a number without quotes");
  const double x = value_->get<double>();
  if (!(x >= low && x <= high))
    fail(fmt::format("{} is out of range", x),
         fmt::format("write a number from {:g} to {:g}", low, high));
  return x;
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean())
    fail(fmt::format("expected true or false, found {}", value_->dump().substr(0, 40)),
         "write true or false without quotes");
  return value_->get<bool>();
}

std::string JsonValue::string() const {
  if (!value_->is_string())
    fail(fmt::format("expected a string, found {}", value_->dump().substr(0, 40)),
         "put it in double quotes");
  return value_->get<std::string>();
}

std::size_t JsonValue::choice(const std::vector<std::string>& choices) const {
  const std::string text = string();
  const auto found = std::ranges::find(choices, text);
  if (found == choices.end()) {
    const std::string near = nearest(text, choices);
    fail(fmt::format("'{}' is not known here{}", text,
                     near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
         fmt::format("choose one of {}", join(choices, ", ")));
  }
  return static_cast<std::size_t>(found - choices.begin());
}

std::vector<JsonValue> JsonValue::array() const {
  if (!value_->is_array())
    fail(fmt::format("expected a list, found {}", value_->dump().substr(0, 40)),
         "write it as [ ... ]");
  std::vector<JsonValue> items;
  items.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i)
    items.emplace_back((*value_)[i], fmt::format("{}[{}]", path_, i));
  return items;
}

JsonObject::JsonObject(const JsonValue& value) : value_(value) {
  if (!value.raw().is_object())
    value.fail(fmt::format("expected an object, found {}", value.raw().dump().substr(0, 40)),
               "write it as { ... }");
}

JsonValue JsonObject::child(const std::string& key, const Json& value) const {
  const bool at_top = path().find(": ") == std::string::npos;
  return {value, at_top ? fmt::format("{}: {}", path(), key) : fmt::format("{}.{}", path(), key)};
}

std::optional<JsonValue> JsonObject::find(const std::string& key) {
  known_.push_back(key);
  const auto found = value_.raw().find(key);
  if (found == value_.raw().end()) return std::nullopt;
  return child(key, *found);
}

bool JsonObject::has(const std::string& key) const { return value_.raw().contains(key); }

JsonValue JsonObject::at(const std::string& key) {
  if (auto found = find(key)) return *found;
  std::vector<std::string> present;
  for (const auto& [name, unused] : value_.raw().items()) present.push_back(name);
  const std::string near = nearest(key, present);
  fail(fmt::format("the key '{}' is missing", key),
       near.empty() ? fmt::format("add \"{}\"", key)
                    : fmt::format("add \"{}\" (is '{}' a misspelling of it?)", key, near));
}

std::int64_t JsonObject::integer(const std::string& key, IntRange range) {
  return at(key).integer(range);
}
std::int64_t JsonObject::integer_or(const std::string& key, std::int64_t fallback, IntRange range) {
  const auto found = find(key);
  return found && !found->raw().is_null() ? found->integer(range) : fallback;
}
double JsonObject::number(const std::string& key, const RealLimit& limit) {
  return at(key).number(limit);
}
double JsonObject::number_or(const std::string& key, double fallback, const RealLimit& limit) {
  const auto found = find(key);
  return found ? found->number(limit) : fallback;
}
std::string JsonObject::string(const std::string& key) { return at(key).string(); }
std::string JsonObject::string_or(const std::string& key, std::string fallback) {
  const auto found = find(key);
  return found ? found->string() : std::move(fallback);
}
bool JsonObject::boolean_or(const std::string& key, bool fallback) {
  const auto found = find(key);
  return found && !found->raw().is_null() ? found->boolean() : fallback;
}
JsonObject JsonObject::object(const std::string& key) { return JsonObject(at(key)); }
std::vector<JsonValue> JsonObject::array(const std::string& key) { return at(key).array(); }

std::vector<std::pair<std::string, JsonValue>> JsonObject::entries() {
  std::vector<std::pair<std::string, JsonValue>> all;
  for (const auto& [key, value] : value_.raw().items()) {
    known_.push_back(key);
    all.emplace_back(key, child(key, value));
  }
  return all;
}

void JsonObject::finish() const {
  for (const auto& [key, value] : value_.raw().items()) {
    if (std::ranges::find(known_, key) != known_.end()) continue;
    const std::string near = nearest(key, known_);
    fail(fmt::format("unknown key '{}'{}", key,
                     near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
         fmt::format("use one of {}", join(known_, ", ")));
  }
}

namespace {

// Where a file of a format belongs.
struct FormatUse {
  std::string_view format, use;
};
constexpr FormatUse kUses[] = {
    {"braid.model", "pass it with --model"},
    {"braid.cluster", "pass it with --cluster"},
    {"braid.profile", "pass it with --profile"},
    {"braid.plan", "it is for check, explain, price, simulate and train"},
    {"braid.train_report", "it is for calibrate --report"},
    {"braid.comparison", "it is for calibrate --comparison and compare --out"},
};

}  // namespace

void expect_format(JsonObject& object, const std::string& format, int version) {
  if (!object.has("format") && object.has("model_type"))
    object.fail(fmt::format("this file is a Hugging Face config, not a '{}'", format),
                "pass it with --model, and here " + fmt::format("a {}", format));
  const std::string found = object.string("format");
  if (found != format) {
    const auto* use = std::ranges::find(kUses, found, &FormatUse::format);
    object.fail(fmt::format("this file is a '{}', not a '{}'", found, format),
                fmt::format("pass a file whose \"format\" is \"{}\"{}", format,
                            use == std::end(kUses) ? "" : fmt::format(" ({})", use->use)));
  }
  const std::int64_t number = object.integer("version");
  if (number != version)
    object.fail(
        fmt::format("version {} of the {} format is not readable here", number, format),
        fmt::format("this program reads version {}: write the file again with it", version));
}

}  // namespace braid
