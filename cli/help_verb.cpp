// braid help: the flags of a verb as text, or of all verbs for other programs to read.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/common.h"
#include "cli/help.h"
#include "cli/verb.h"
#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"

namespace braid::cli {
namespace {

struct HelpFlags {
  std::vector<std::string> path;
  std::string format = "text";
};

const CLI::App& verb_at(const CLI::App& app, const std::vector<std::string>& path) {
  const CLI::App* verb = &app;
  for (const std::string& name : path) {
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* below : verb->get_subcommands({})) {
      names.push_back(below->get_name());
      if (below->get_name() == name) next = below;
    }
    if (next == nullptr) {
      const std::string near = nearest(name, names);
      throw Error(
          {.what = fmt::format("there is no verb '{}'{}", printable(name),
                               near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
           .where = "braid help",
           .fix = names.empty() ? fmt::format("write '{}'", full_name(*verb))
                                : fmt::format("write one of {}", join(names, ", "))});
    }
    verb = next;
  }
  return *verb;
}

Json option_json(const CLI::Option& option) {
  Json names = Json::array();
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  Json json = {{"flags", std::move(names)},
               {"takes_value", option.get_items_expected_max() > 0},
               {"required", option.get_required()},
               {"text", option.get_description()}};
  if (option.get_positional()) json["word"] = option.get_name(/*positional=*/true);
  if (option.get_items_expected_max() > 0) json["type"] = option.get_type_name();
  return json;
}

Json verb_json(const CLI::App& verb) {
  Json json = {{"verb", full_name(verb)}, {"text", verb.get_description()}};
  Json options = Json::array();
  for (const CLI::Option* option : verb.get_options())
    if (!option->get_group().empty()) options.push_back(option_json(*option));
  json["options"] = std::move(options);
  Json verbs = Json::array();
  for (const CLI::App* below : verb.get_subcommands({})) verbs.push_back(verb_json(*below));
  if (!verbs.empty()) json["verbs"] = std::move(verbs);
  return json;
}

int run_help(const CLI::App& app, const HelpFlags& flags) {
  const Format format = read_format(flags.format);
  const CLI::App& verb = verb_at(app, flags.path);
  if (format == Format::json) {
    print(verb_json(verb));
  } else {
    print(help_text(verb, static_cast<std::size_t>(terminal_options().width)));
  }
  return kOk;
}

}  // namespace

void add_help(CLI::App& app, Run& run) {
  const auto flags = std::make_shared<HelpFlags>();
  const Verb verb = Verb(app).add("help", "show the flags of a verb");
  const Options option(verb);
  option("verb", flags->path, "VERB",
         "the verb, \"import galvatron\" for example; none: all verbs");
  option("--format", flags->format, "NAME", "text (default) or json");
  verb.examples({"braid help plan"});
  verb.when_chosen([&app, flags, &run] { run = [&app, flags] { return run_help(app, *flags); }; });
}

}  // namespace braid::cli
