#pragma once
// What the program can do. Each verb adds itself to the command line and, when it was chosen, puts
// what is to be done into `run`, which returns the exit status.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace braid::cli {

using Run = std::function<int()>;

// Exit statuses, as --help promises them.
inline constexpr int kOk = 0;
inline constexpr int kInternal = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kInfeasible = 3;
inline constexpr int kInterrupted = 130;  // what a shell shows after Ctrl-C

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

void add_plan(CLI::App& app, Run& run);
void add_primepar(CLI::App& app, Run& run);
void add_explain(CLI::App& app, Run& run);
void add_check(CLI::App& app, Run& run);
void add_simulate(CLI::App& app, Run& run);
void add_import(CLI::App& app, Run& run);
void add_train(CLI::App& app, Run& run);
void add_compare(CLI::App& app, Run& run);
void add_calibrate(CLI::App& app, Run& run);
void add_auto(CLI::App& app, Run& run);
void add_profile(CLI::App& app, Run& run);
void add_validate(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);

}  // namespace braid::cli
