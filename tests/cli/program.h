#pragma once
// Runs the built program the way a shell does, in a folder of its own.

#include <filesystem>
#include <string>
#include <vector>

#include "planner/core/json.h"

namespace braid {

// A folder that is gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// A folder with sound inputs: model.json, cluster.json and profile.json.
class InputFolder : public TemporaryFolder {
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
  Outcome wait();     // once

 private:
  TemporaryFolder streams_;
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
