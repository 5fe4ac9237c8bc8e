// What a terminal gets: colours, but not one that knows none.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/cli/program.h"

namespace braid {
namespace {

// What the program writes to a terminal of its own.
std::string on_terminal(const std::filesystem::path& folder, const char* kind) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    setenv("TERM", kind, 1);
    unsetenv("NO_COLOR");
    if (chdir(folder.c_str()) == 0)
      execl(BRAID_BINARY, BRAID_BINARY, "explain", "plan.json", nullptr);
    _exit(127);
  }
  std::string text;
  char block[4096];
  for (ssize_t count = 0; (count = read(terminal, block, sizeof block)) > 0;)
    text.append(block, static_cast<std::size_t>(count));
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0) << text;
  return text;
}

TEST(Terminal, GetsColoursUnlessItIsDumb) {
  const InputFolder folder;
  make_plan(folder.path());
  const std::string colourful = on_terminal(folder.path(), "xterm");
  EXPECT_NE(colourful.find("iteration"), std::string::npos);
  EXPECT_NE(colourful.find("\x1b["), std::string::npos);
  const std::string dumb = on_terminal(folder.path(), "dumb");
  EXPECT_NE(dumb.find("iteration"), std::string::npos);
  EXPECT_EQ(dumb.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace braid
