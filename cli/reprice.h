#pragma once
// A plan that was read from a file, priced anew: as it stands, or under another question.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/common.h"
#include "planner/plan/plan.h"

namespace braid::cli {

struct WhatIf {
  std::optional<std::int64_t> sequence, global_batch, devices;
  std::optional<Bytes> memory;
  bool asked() const { return sequence || global_batch || devices || memory; }
};

// The same plan under the question: micro-batches keep their size and change their number, devices
// change the replicas. Throws Error where the plan cannot be stretched so.
Plan changed(const Plan& plan, const WhatIf& question, const std::string& source);

// The profile that prices the plan: the one the user passes, otherwise the plan's own as long as it
// is what it was. None for a plan that needs none. Throws Error for one that is gone or different:
// old costs must not pass for new ones.
std::optional<LoadedProfile> profile_of(const Plan& plan, const std::string& plan_file,
                                        const std::string& given);
// The plan of a file. Notes what a Hugging Face config that the file names has and its model does
// not follow, as verbs with --model do.
Plan load_plan(const std::string& file);
// Whether the file had a prediction: a plan written by hand has none.
bool has_prediction(const Plan& plan);
// The plan of a file. One without a prediction, or with one that no hardware allows, is priced, by
// its own profile where it needs one.
Plan read_priced(const std::string& file);
// Whether the plan's own profile cannot be read, with none given in its place.
bool profile_missing(const Plan& plan, const std::string& plan_file, const std::string& given);

// The plan with a fresh prediction, and with the bound of physics. What else a certificate says
// speaks of the prices it was made with, so it goes where they changed. Error where the prediction
// is below physics.
Plan priced(const Plan& plan, const std::optional<LoadedProfile>& profile);
// Whether every figure of the two predictions is the same.
bool same_prediction(const Plan& a, const Plan& b);

// A figure of a plan's file that today's prices do not give, both as text.
struct StaleFigure {
  std::string name;  // "stage 0's forward"
  std::string stored, now;
};
// All of prediction and certificate; none where the file has no prediction.
std::vector<StaleFigure> stale_figures(const Plan& file, const Plan& fresh);
// "stage 0's forward 0 s in the file, 3.00 ms priced anew"; the iteration's name is left out.
std::string in_words(const StaleFigure& figure);
// The first of them in words, and how many more there are. Empty where there is none.
std::string stale_figure(const Plan& file, const Plan& fresh);

}  // namespace braid::cli
