#include "runtime/measure/journal.h"

#include <fmt/core.h>

#include <sstream>

#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"

namespace braid::measure {

namespace {

constexpr const char* kFormat = "braid.profile_journal";

std::string heading(const std::vector<Fact>& facts) {
  Json json{{"format", kFormat}, {"version", kProfileVersion}, {"taken_on", Json::object()}};
  for (const Fact& fact : facts) json["taken_on"][fact.name] = fact.value;
  return json.dump() + "\n";
}

std::string line_of(const std::string& key, const Finding& finding) {
  return Json{{"key", key}, {"values", finding.values}, {"spread", finding.spread}}.dump() + "\n";
}

std::pair<std::string, Finding> parse_line(const std::string& line, const std::string& where) {
  const Json json = parse_json(line, where);
  JsonObject object{JsonValue(json, where)};
  Finding finding;
  const std::string key = object.string("key");
  for (const JsonValue& value : object.array("values"))
    finding.values.push_back(value.number(limits::kFigure));
  finding.spread = object.number("spread", limits::kNoise);
  object.finish();
  return {key, finding};
}

}  // namespace

Journal::Journal(std::filesystem::path file, const std::vector<Fact>& facts)
    : file_(std::move(file)) {
  const std::string head = heading(facts);
  std::error_code code;
  if (std::filesystem::exists(file_, code)) {
    const std::string before = read_text(file_);
    if (before.starts_with(head)) {
      findings_ = from_text(before.substr(head.size())).findings_;
    } else if (!before.starts_with(fmt::format("{{\"format\":\"{}\"", kFormat)) &&
               !before.empty()) {
      throw Error({.what = "this file is no journal of a measurement",
                   .where = file_.string(),
                   .fix = "remove it, or choose another place for the profile"});
    }
  }
  // What was read is written again, without a line that was cut off.
  write_text(file_, head + text());
}

Journal Journal::from_text(const std::string& text) {
  Journal journal;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (lines.eof()) break;  // no end of line: the run was killed while writing it
    journal.findings_.insert(parse_line(line, "the journal"));
  }
  return journal;
}

std::string Journal::text() const {
  std::string text;
  for (const auto& [key, finding] : findings_) text += line_of(key, finding);
  return text;
}

std::optional<Finding> Journal::find(const std::string& key) const {
  const auto found = findings_.find(key);
  return found == findings_.end() ? std::nullopt : std::optional(found->second);
}

void Journal::add(const std::string& key, const Finding& finding) {
  findings_[key] = finding;
  if (file_.empty()) return;
  AppendFile(file_).append(line_of(key, finding));
}

void Journal::remove() {
  std::error_code code;
  if (!file_.empty()) std::filesystem::remove(file_, code);
}

}  // namespace braid::measure
