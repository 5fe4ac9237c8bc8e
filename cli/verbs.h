#pragma once
// What the program can do. Each verb adds itself to the command line and, when it was chosen, puts
// what is to be done into `run`, which returns the exit status.

#include <functional>

namespace braid::cli {

class Options;
class Verb;

using Run = std::function<int()>;

// Exit statuses, as --help promises them.
inline constexpr int kOk = 0;
inline constexpr int kInternal = 1;
inline constexpr int kBadInput = 2;
inline constexpr int kInfeasible = 3;
// A signal ends a verb with 128 + its number: cli/interrupt.h.

void add_plan(const Verb& app, Run& run);
void add_price(const Verb& app, Run& run);
void add_primepar(const Verb& app, Run& run);
void add_explain(const Verb& app, Run& run);
void add_check(const Verb& app, Run& run);
void add_simulate(const Verb& app, Run& run);
void add_import(const Verb& app, Run& run);
void add_train(const Verb& app, Run& run);
void add_checkpoint(const Verb& app, Run& run);
void add_compare(const Verb& app, Run& run);
void add_calibrate(const Verb& app, Run& run);
void add_auto(const Verb& app, Run& run);
void add_profile(const Verb& app, Run& run);
void add_validate(const Verb& app, Run& run);
void add_bench(const Verb& app, Run& run);
void add_version(const Verb& app, Run& run);

}  // namespace braid::cli
