#pragma once
// What the verbs that measure share: a bench with its journal, progress, the file at the end.

#include <functional>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "cli/world.h"
#include "runtime/measure/bench.h"
#include "runtime/measure/hardware.h"
#include "runtime/measure/layers.h"

namespace braid::cli {

// Flags as they were typed.
struct ProfileFlags {
  WorldFlags world;
  std::string out, precision, limit, gradients = "fp32", format = "text";
};
void add_profile_flags(const Options& option, ProfileFlags& flags);
// What was typed, else bf16 on GPUs and fp32 on CPUs.
Precision read_precision(const ProfileFlags& flags, const Place& place);

// `facts` and `what` (a line that says what is measured) tell whether an earlier run's journal,
// beside the file to write, is of the same measurement. Collective.
measure::Bench open_bench(comm::Group& world, c10::Device device, const ProfileFlags& flags,
                          const Place& place, std::vector<Fact> facts, const std::string& what);

// Writes the profile, on rank 0. The journal goes unless the limit left something out.
void finish_bench(measure::Bench& bench, const ProfileFlags& flags, const Profile& profile);
// How noisy it was, what was left out, and how long it took.
std::string closing_text(const measure::Bench& bench, const ProfileFlags& flags,
                         const Profile& profile, Seconds took);

// What --format json prints: the file, how long it took, what was left out, and the profile.
Json closing_json(const measure::Bench& bench, const ProfileFlags& flags, const Profile& profile,
                  Seconds took);

// "[#####.....]  61/128  all_gather 4x1 32768  eta 12s", over and over on a terminal, a line every
// few seconds elsewhere. `now` is a clock, in seconds.
std::function<void(const measure::BenchProgress&)> progress_on(std::FILE* out, bool terminal,
                                                               const std::function<double()>& now);

Bytes read_largest_message(const std::string& text);  // of --max-message

// braid profile hardware
void add_profile_hardware(const Verb& profile, Run& run);
std::string hardware_text(const Profile& profile, const RenderOptions& look);

// braid profile model
void add_profile_model(const Verb& profile, Run& run);
// A profile of hardware (measured first where it is not given) and model. Collective.
Profile profile_model(measure::Bench& bench, const std::optional<Profile>& hardware,
                      const Model& model, const measure::HardwareOptions& machine,
                      const measure::ModelOptions& options, measure::ModelCost& cost);

}  // namespace braid::cli
