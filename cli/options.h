#pragma once
// How verbs add to the command line.

#include <CLI/CLI.hpp>
#include <string>

namespace braid::cli {

// Adds options that take a value to one verb. An empty value is refused: an unset variable in a
// script must not pass for a flag that was left out.
class Options {
 public:
  explicit Options(CLI::App& verb) : verb_(verb) {}
  template <class Value>
  CLI::Option* operator()(const char* name, Value& value, const char* type,
                          const char* text) const {
    return verb_.add_option(name, value, text)
        ->type_name(type)
        ->check([](const std::string& given) { return std::string(given.empty() ? "empty" : ""); });
  }

 private:
  CLI::App& verb_;
};

}  // namespace braid::cli
