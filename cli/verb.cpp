#include "cli/verb.h"

#include <CLI/CLI.hpp>

#include "cli/version.h"

namespace braid::cli {

namespace {

template <class Value>
CLI::Option& add_option(CLI::App& app, const char* name, Value& value, const char* type,
                        const char* text) {
  return *app.add_option(name, value, text)->type_name(type)->check([](const std::string& given) {
    return std::string(given.empty() ? "empty" : "");
  });
}

}  // namespace

Verb Verb::add(const std::string& name, const std::string& text) const {
  CLI::App* const verb = app_->add_subcommand(name, text);
  verb->footer("");
  verb->set_version_flag("--version,-V", [] { return version_text(); })->group("");  // hidden
  return Verb(*verb);
}

void Verb::flag(const char* name, bool& value, const char* text) const {
  app_->add_flag(name, value, text);
}

void Verb::examples(const std::vector<std::string>& commands) const {
  std::string text = commands.size() > 1 ? "Examples:" : "Example:";
  for (const std::string& command : commands) text += "\n  " + command;
  app_->footer(text);
}

void Verb::remark(const std::string& text) const {
  app_->footer(app_->get_footer() + "\n\n" + text);
}

void Verb::needs_one_below() const { app_->require_subcommand(1); }
void Verb::takes_anything() const { app_->allow_extras(); }
void Verb::when_chosen(const std::function<void()>& then) const { app_->callback(then); }

Option Option::required() const { return Option(*option_->required()); }
Option Option::split_at_commas() const {
  return Option(*option_->delimiter(',')->allow_extra_args(false));
}
Option Option::one_at_a_time() const { return Option(*option_->allow_extra_args(false)); }

Option Options::operator()(const char* name, std::string& value, const char* type,
                           const char* text) const {
  return Option(*add_option(*app_, name, value, type, text).take_last());
}

Option Options::operator()(const char* name, std::vector<std::string>& values, const char* type,
                           const char* text) const {
  return Option(add_option(*app_, name, values, type, text));
}

}  // namespace braid::cli
