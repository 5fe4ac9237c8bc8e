#pragma once
// Runs the built program the way a shell does, in a folder of its own.

#include <filesystem>
#include <string>
#include <vector>

#include "planner/core/json.h"
#include "tests/support/files.h"

namespace braid {

// A folder with sound inputs: model.json, cluster.json and profile.json.
class InputFolder : public ScratchFolder {
 public:
  InputFolder();
};

struct Outcome {
  int exit = 0;
  std::string out, error;
};
// A run under way.
class StartedBraid {
 public:
  StartedBraid(const std::vector<std::string>& arguments, const std::filesystem::path& folder);
  void kill() const;  // as a machine does that loses power
  void send(int signal) const;
  Outcome wait();  // once

 private:
  ScratchFolder streams_;
  int child_ = -1;
};
Outcome run_braid(const std::vector<std::string>& arguments, const std::filesystem::path& folder);

// The flags of the smallest task that the inputs make.
std::vector<std::string> plan_command(std::vector<std::string> more = {});
// Writes plan.json.
void make_plan(const std::filesystem::path& folder, std::vector<std::string> more = {});
// Standard output of a run that must succeed.
Json json_of(const Outcome& outcome);

}  // namespace braid
