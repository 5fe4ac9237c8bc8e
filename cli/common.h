#pragma once
// What several verbs share: flags as text, files, the terminal. Flags stay text until a verb reads
// them, so that a mistake in one is told like any other: what, where and how to fix it.

#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/units.h"
#include "planner/explain/layout.h"
#include "planner/plan/plan.h"
#include "planner/profile/profile.h"

namespace braid {
struct SearchOptions;
}

namespace braid::cli {

// A flag that was not given is empty text.
std::optional<std::int64_t> read_count(const std::string& text, const std::string& flag,
                                       IntRange range = limits::kCount);
std::optional<Bytes> read_memory(const std::string& text);
// The index of the name; an Error lists them all.
std::size_t read_choice(const std::string& text, const std::string& flag,
                        const std::vector<std::string>& names);

template <class Enum, std::size_t n>
Enum read_enum(const std::string& text, const std::string& flag, const Enum (&values)[n]) {
  std::vector<std::string> names;
  for (const Enum value : values) names.push_back(name_of(value));
  return values[read_choice(text, flag, names)];
}
inline constexpr CostKind kCosts[] = {CostKind::measured, CostKind::roofline, CostKind::galvatron,
                                      CostKind::analytic};
inline constexpr Precision kPrecisions[] = {Precision::bf16, Precision::fp32, Precision::fp8};
// Of --gradients, for a model that computes in `precision`.
Precision read_gradients(const std::string& text, Precision precision);
inline constexpr const char* kGradientsHelp =
    "fp32 (default) or bf16: gradients, and sums of them over micro-batches and ranks";

enum class Format { text, json };
Format read_format(const std::string& text);

// Where the answer goes: standard output, or standard error if a file flag names standard output.
std::FILE* answer_stream();
// Color and width as the answer's terminal has them; NO_COLOR is respected.
RenderOptions terminal_options();
// A terminal that knows escape sequences: TERM is not "dumb".
bool is_terminal(std::FILE* stream);
// To the answer's stream; an Error where that fails (a full disk behind a redirection).
void print(const std::string& text);
// Bytes of a name that are no UTF-8 become U+FFFD: a file's name may hold any.
void print(const Json& json);
// "in plan.json" or "on standard output": where a file flag had its file written.
std::string place_of(const std::string& file);
void note(const std::string& text);  // one line on standard error
// What, where and how to fix it, on standard error.
void tell(const Mistake& mistake);
// That memory ran out, by the standard library's exception or libtorch's for a CPU or a GPU.
bool is_out_of_memory(const std::exception& error);
Mistake out_of_memory(const std::exception& error);

// Called before the work whose result goes to the file that the flag names. Throws an Error if it
// cannot be written. A file that is standard output (--out -) sends the answer to standard error.
void expect_writable(const std::filesystem::path& file, const std::string& flag);

// Reads a model file and notes what of it the model does not follow; of several processes the first
// one tells.
Model load_model(const std::filesystem::path& file, std::int64_t sequence, bool tells = true);

struct LoadedProfile {
  Profile profile;
  ProfileReference reference;
};
LoadedProfile load_profile(const std::filesystem::path& file);
// Error unless the profile was measured for this; a note says what it does not carry.
void expect_holds(const LoadedProfile& profile, const Model& model, const Cluster& cluster,
                  Precision precision);
// What --precision and --gradients leave open is as in the profile. A model in fp32 has its
// gradients in fp32.
void choose_precisions(SearchOptions& options, const std::optional<LoadedProfile>& profile,
                       const std::string& precision, const std::string& gradients);

// Where the model and the cluster come from: their own files, or a profile that carries them.
struct TaskFlags {
  std::string model, cluster, profile, sequence, devices;
};
struct Task {
  Model model;
  Cluster cluster;
  std::optional<LoadedProfile> profile;
};
Task load_task(const TaskFlags& flags);

}  // namespace braid::cli
