// The program: one verb a file beside this one. Here are the command line itself, its mistakes and
// the exit status.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>

#include "cli/common.h"
#include "cli/help.h"
#include "cli/renamed.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "planner/core/error.h"
#include "planner/core/text.h"

namespace braid::cli {
namespace {

class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* verb, std::string /*name*/,
                        CLI::AppFormatMode /*mode*/) const override {
    return help_text(*verb, static_cast<std::size_t>(terminal_options().width));
  }
};

int report(const Mistake& mistake) {
  tell(mistake);
  return kBadInput;
}

// The verb that was chosen, however deep ("import galvatron").
const CLI::App* chosen(const CLI::App* app) {
  const auto verbs = app->get_subcommands();
  return verbs.empty() ? app : chosen(verbs.front());
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  return names;
}

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// Something that the verb does not take.
Mistake surplus(const std::string& word, const CLI::App& verb, const std::string& help) {
  const bool flag = word.starts_with('-');
  const std::vector<std::string> verbs = verbs_of(verb);
  const std::string near = nearest(word, flag ? flags_of(verb) : verbs);
  const char* kind = flag ? "flag" : verbs.empty() ? "argument" : "verb";
  return {fmt::format("the {} '{}' is not known here{}", kind, word,
                      near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
          full_name(verb), help};
}

// The name of an option that may be given without its flag; empty for all others.
std::string positional_name(const CLI::App& verb, const std::string& name) {
  const CLI::Option* option = verb.get_option_no_throw(name);
  return option != nullptr ? option->get_name(/*positional=*/true) : "";
}

Mistake missing(const std::string& name, const CLI::App& verb, const std::string& help) {
  const std::vector<std::string> verbs = verbs_of(verb);
  if (!verbs.empty())
    return {"no verb is given", full_name(verb), fmt::format("write one of {}", join(verbs, ", "))};
  if (const std::string word = positional_name(verb, name); !word.empty())
    return {fmt::format("no {} is given", word), full_name(verb),
            fmt::format("write {} {}.json; {}", full_name(verb), word, help)};
  return {fmt::format("{} is missing", name), full_name(verb),
          fmt::format("add {}; {}", name, help)};
}

// What CLI11 objects to, in our words. Its messages begin with the option's name.
Mistake mistake_of(const CLI::ParseError& error, const CLI::App& app) {
  const CLI::App& verb = *chosen(&app);
  const std::string help = fmt::format("'{} --help' shows what it takes", full_name(verb));
  const std::string message = error.what();
  const std::string name = message.substr(0, message.find_first_of(" :"));
  if (const auto left = app.remaining(true); !left.empty())
    return surplus(left.front(), verb, help);
  if (error.get_name() == "RequiredError") return missing(name, verb, help);
  if (error.get_name() == "ArgumentMismatch")
    return {fmt::format("{} has no value", name), full_name(verb),
            fmt::format("write a value after it; {}", help)};
  if (error.get_name() == "ValidationError")
    return {fmt::format("the value of {} is empty", name), full_name(verb),
            fmt::format("write a value after it, or leave it out; {}", help)};
  return {message, full_name(verb), help};
}

int run_program(int argc, char** argv) {
  CLI::App app("finds the fastest hybrid-parallel training plan for a Transformer that fits",
               "braid");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("--help,-h", "show this text");
  app.set_version_flag(
      "--version,-V", [] { return version_text(); }, "show the version");
  app.require_subcommand(1);
  const Verb verbs(app);
  Run run;
  add_plan(verbs, run);
  add_price(verbs, run);
  add_primepar(verbs, run);
  add_explain(verbs, run);
  add_check(verbs, run);
  add_simulate(verbs, run);
  add_validate(verbs, run);
  add_import(verbs, run);
  add_train(verbs, run);
  add_checkpoint(verbs, run);
  add_compare(verbs, run);
  add_calibrate(verbs, run);
  add_auto(verbs, run);
  add_profile(verbs, run);
  add_bench(verbs, run);
  add_version(verbs, run);
  add_help(app, run);
  verbs.examples(
      {"braid plan --model configs/models/llama2-7b.json --cluster "
       "configs/clusters/a100-80g-8.json --global-batch 64 --out plan.json",
       "braid explain plan.json --seq 8192"});
  verbs.remark("'braid help VERB' has the flags of a verb and an example.");
  verbs.remark(
      "Exit status: 0 done, 2 a mistake in what was given, 3 no plan fits or memory ran out, "
      "130, 138 or 143 interrupted, 1 a bug of ours.");
  try {
    std::vector<std::string> words = with_present_names({argv + std::min(argc, 1), argv + argc});
    std::ranges::reverse(words);  // as CLI11 takes them
    app.parse(std::move(words));
  } catch (const CLI::Success& success) {  // --help and --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return report(mistake_of(error, app));
  }
  return run();
}

// internal_check has printed what broke and where; the shell gets the promised status.
extern "C" void on_abort(int) { std::_Exit(kInternal); }

}  // namespace
}  // namespace braid::cli

namespace {

int guarded_main(int argc, char** argv) {
  namespace cli = braid::cli;
  try {
    return cli::run_program(argc, argv);
  } catch (const braid::Error& error) {
    return cli::report(error.mistake());
  } catch (const std::exception& error) {
    if (cli::is_out_of_memory(error)) {
      cli::tell(cli::out_of_memory(error));
      return cli::kInfeasible;
    }
    fmt::print(stderr, "braid: internal error: {}; please report it\n", error.what());
  }
  return cli::kInternal;
}

}  // namespace

// Destructors of libtorch_cuda's static objects fail after all is done: the process leaves without.
int main(int argc, char** argv) {
  std::signal(SIGABRT, braid::cli::on_abort);
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit of a file's size fails like any other
  const int status = guarded_main(argc, argv);
  std::fflush(nullptr);
  std::_Exit(status);
}
