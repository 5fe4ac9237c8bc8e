#include "cli/help.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <sstream>

#include "planner/core/text.h"
#include "planner/explain/layout.h"

namespace braid::cli {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kTextColumn = 26;  // where explanations begin

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// "  --seq N   tokens of a sample": the name, and the explanation beside or below it.
std::string entry(const std::string& name, const std::string& text, std::size_t width) {
  std::string line = std::string(kIndent, ' ') + name;
  if (cells(line) + 2 > kTextColumn) {
    line += '\n' + std::string(kTextColumn, ' ');
  } else {
    line = pad_right(line, kTextColumn);
  }
  return line + wrap(text, width - kTextColumn, kTextColumn) + '\n';
}

// "PLAN, --plan FILE"
std::string option_name(const CLI::Option& option) {
  std::vector<std::string> names;
  if (option.get_positional()) names.push_back(upper(option.get_name(/*positional=*/true)));
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const std::string type = option.get_items_expected_max() > 0 ? option.get_type_name() : "";
  return join(names, ", ") + (type.empty() ? "" : " " + type);
}

std::string usage(const CLI::App& verb) {
  std::string text = "Usage: " + full_name(verb);
  if (!verb.get_subcommands({}).empty()) return text + " VERB";
  for (const CLI::Option* option : verb.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = upper(option->get_name(/*positional=*/true));
    const bool several = option->get_items_expected_max() > 1;
    text += option->get_required() ? " " + name : fmt::format(" [{}{}]", name, several ? " …" : "");
  }
  return text + " [FLAG …]";
}

std::string options_text(const CLI::App& verb, std::size_t width) {
  std::string text = "Flags:\n";
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    text += entry(option_name(*option),
                  option->get_description() + (option->get_required() ? " (required)" : ""), width);
  }
  return text;
}

std::string verbs_text(const CLI::App& verb, std::size_t width) {
  std::string text = "Verbs:\n";
  for (const CLI::App* below : verb.get_subcommands({}))
    text += entry(below->get_name(), below->get_description(), width);
  return text;
}

// A line that begins with blanks is a command.
std::string footer_text(const CLI::App& verb, std::size_t width) {
  std::istringstream footer(verb.get_footer());
  std::string text;
  for (std::string line; std::getline(footer, line);)
    text += (line.starts_with("  ") ? folded_command(line, width) : wrap(line, width, 0)) + '\n';
  return text;
}

}  // namespace

std::string folded_command(const std::string& command, std::size_t width) {
  constexpr std::size_t kContinued = 6;
  constexpr std::size_t kBackslash = 2;
  const std::size_t indent = std::min(command.find_first_not_of(' '), command.size());
  std::istringstream words(command);
  std::string text;
  std::string line(indent, ' ');
  // A flag and its value stay together.
  std::string word;
  for (words >> word; words;) {
    std::string piece = word;
    const bool flag = word.starts_with("--");
    if (words >> word && flag && !word.starts_with('-')) {
      piece += ' ' + word;
      words >> word;
    }
    const bool first = cells(line) == indent && text.empty();
    if (!first && cells(line) + 1 + cells(piece) + kBackslash > width) {
      text += line + " \\\n";
      line = std::string(kContinued, ' ') + piece;
    } else {
      line += (first ? "" : " ") + piece;
    }
  }
  return text + line;
}

std::string full_name(const CLI::App& verb) {
  const CLI::App* parent = verb.get_parent();
  return parent == nullptr ? verb.get_name() : full_name(*parent) + " " + verb.get_name();
}

std::string help_text(const CLI::App& verb, std::size_t width) {
  std::vector<std::string> parts = {
      wrap(fmt::format("{}: {}", full_name(verb), verb.get_description()), width, 0) + '\n' +
      usage(verb) + '\n'};
  if (!verb.get_subcommands({}).empty()) parts.push_back(verbs_text(verb, width));
  parts.push_back(options_text(verb, width));
  if (!verb.get_footer().empty()) parts.push_back(footer_text(verb, width));
  return join(parts, "\n");
}

}  // namespace braid::cli
