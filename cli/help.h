#pragma once
// The text of --help, at any width.

#include <cstddef>
#include <string>

#include "cli/verbs.h"

namespace CLI {  // NOLINT(readability-identifier-naming): not our name
class App;
}  // namespace CLI

namespace braid::cli {

// No line is longer than `width` columns, except for a single word.
std::string help_text(const CLI::App& verb, std::size_t width);

// The words of a command on lines of at most `width` columns, each but the last with a backslash.
std::string folded_command(const std::string& command, std::size_t width);

void add_help(CLI::App& app, Run& run);  // the verb itself

// "braid import galvatron"
std::string full_name(const CLI::App& verb);

}  // namespace braid::cli
