#include "tests/cli/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>  // kill is POSIX: <csignal> need not declare it
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "planner/core/file.h"
#include "planner/core/json.h"

namespace braid {
namespace {

// A shell's status of a program that a signal ended.
constexpr int kSignalled = 128;

[[noreturn]] void become(const std::vector<std::string>& arguments,
                         const std::filesystem::path& folder, const std::filesystem::path& out,
                         const std::filesystem::path& error) {
  const auto redirect = [](const std::filesystem::path& file, int descriptor) {
    const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (opened < 0 || dup2(opened, descriptor) < 0) _exit(kSignalled);
  };
  redirect(out, STDOUT_FILENO);
  redirect(error, STDERR_FILENO);
  if (chdir(folder.c_str()) != 0) _exit(kSignalled);
  setenv("COLUMNS", "160", 0);  // tests look for words that a narrow table would break
  std::vector<std::string> words = {BRAID_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(BRAID_BINARY, pointers.data());
  _exit(kSignalled);
}

}  // namespace

InputFolder::InputFolder() {
  const std::filesystem::path inputs = std::filesystem::path(BRAID_SOURCE_DIR) / "tests/cli/inputs";
  std::filesystem::copy(inputs, path(), std::filesystem::copy_options::recursive);
}

StartedBraid::StartedBraid(const std::vector<std::string>& arguments,
                           const std::filesystem::path& folder)
    : child_(fork()) {
  if (child_ == 0) become(arguments, folder, streams_ / "out", streams_ / "error");
}

void StartedBraid::kill() const { send(SIGKILL); }

void StartedBraid::send(int signal) const { ::kill(child_, signal); }

Outcome StartedBraid::wait() {
  int status = 0;
  if (child_ < 0 || waitpid(child_, &status, 0) != child_) {
    ADD_FAILURE() << "cannot start " << BRAID_BINARY;
    return {};
  }
  const int exit = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
  return {exit, read_text(streams_ / "out"), read_text(streams_ / "error")};
}

Outcome run_braid(const std::vector<std::string>& arguments, const std::filesystem::path& folder) {
  return StartedBraid(arguments, folder).wait();
}

std::vector<std::string> plan_command(std::vector<std::string> more) {
  std::vector<std::string> command = {"plan",         "--model",        "model.json", "--cluster",
                                      "cluster.json", "--global-batch", "8"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

void make_plan(const std::filesystem::path& folder, std::vector<std::string> more) {
  more.insert(more.end(), {"--out", "plan.json"});
  const Outcome outcome = run_braid(plan_command(std::move(more)), folder);
  ASSERT_EQ(outcome.exit, 0) << outcome.error;
}

Json json_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit, 0) << outcome.error;
  return parse_json(outcome.out, "standard output");
}

}  // namespace braid
