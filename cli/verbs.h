#pragma once
// What the program can do. Each verb adds itself to the command line and, when it was chosen, puts
// what is to be done into `run`, which returns the exit status.

#include <functional>

// CLI11's header costs seconds: only what adds options includes it, through cli/options.h.
namespace CLI {  // NOLINT(readability-identifier-naming): not our name
class App;
}

namespace braid::cli {

class Options;

using Run = std::function<int()>;

// Exit statuses, as --help promises them.
inline constexpr int kOk = 0;
inline constexpr int kInternal = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kInfeasible = 3;
inline constexpr int kInterrupted = 130;  // what a shell shows after Ctrl-C

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
