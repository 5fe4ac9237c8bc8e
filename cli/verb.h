#pragma once
// How verbs add to the command line. CLI11 stands behind it and is seen in verb.cpp and main.cpp
// only: every file that includes its header takes seconds more to compile.

#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): not our name
class App;
class Option;
}  // namespace CLI

namespace braid::cli {

// The program, or what it can do; lives as long as the command line.
class Verb {
 public:
  explicit Verb(CLI::App& app) : app_(&app) {}

  Verb add(const std::string& name, const std::string& text) const;  // below this one
  void flag(const char* name, bool& value, const char* text) const;
  // The end of --help: command lines on one line each, then sentences. The verb's own alone count:
  // verbs below it do not have them.
  void examples(const std::vector<std::string>& commands) const;
  void remark(const std::string& text) const;
  void needs_one_below() const;
  void takes_anything() const;
  void when_chosen(const std::function<void()>& then) const;

 private:
  friend class Options;
  CLI::App* app_;
};

class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}
  Option required() const;
  Option split_at_commas() const;  // one word holds several values; a second word needs the name
  Option one_at_a_time() const;    // a second value needs the name again

 private:
  CLI::Option* option_;
};

// Adds options that take a value to one verb: "--seq", "plan" for a word without a name, or
// "plan,--plan" for both. Of an option that is given twice the last value counts, and all values
// where it takes a list. An empty value is refused: an unset variable in a script must not pass for
// a flag that was left out.
class Options {
 public:
  explicit Options(const Verb& verb) : app_(verb.app_) {}
  Option operator()(const char* name, std::string& value, const char* type, const char* text) const;
  Option operator()(const char* name, std::vector<std::string>& values, const char* type,
                    const char* text) const;

 private:
  CLI::App* app_;
};

}  // namespace braid::cli
