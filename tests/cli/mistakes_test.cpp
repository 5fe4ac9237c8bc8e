// One small file for each mistake a user can make. Beside the sound inputs of tests/cli/inputs and
// a plan made from them, a file of tests/cli/mistakes says:
//   "command"  what is typed after `braid`
//   "files"    files to write, as text or as JSON
//   "edit"     changes to files that are there, by JSON pointer; null removes
//   "exit"     the status to expect: 2, or 3 where nothing fits
//   "expect"   words of what is wrong, where it is and how to fix it

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/core/file.h"
#include "tests/cli/program.h"

#include "planner/core/json.h"

namespace braid {
namespace {

std::vector<std::filesystem::path> mistakes() {
  std::vector<std::filesystem::path> files;
  const auto folder = std::filesystem::path(BRAID_SOURCE_DIR) / "tests/cli/mistakes";
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

void edit(const std::filesystem::path& file, const Json& changes) {
  Json json = read_json(file);
  for (const auto& [place, value] : changes.items()) {
    const Json::json_pointer pointer(place);
    if (value.is_null()) {
      json.at(pointer.parent_pointer()).erase(pointer.back());
    } else {
      json[pointer] = value;
    }
  }
  write_text(file, json.dump());
}

class Mistakes : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Mistakes, SaysWhatWhereAndFix) {
  const Json mistake = read_json(GetParam());
  const InputFolder folder;
  make_plan(folder.path());
  const Json none = Json::object();
  const auto list = [&](const char* key) { return mistake.contains(key) ? mistake.at(key) : none; };
  const Json files = list("files");
  for (const auto& [name, content] : files.items())
    write_text(folder / name, content.is_string() ? content.get<std::string>() : content.dump());
  const Json edits = list("edit");
  for (const auto& [name, changes] : edits.items()) edit(folder / name, changes);

  const Outcome outcome = run_braid(mistake.at("command"), folder.path());
  EXPECT_EQ(outcome.exit, mistake.at("exit").get<int>()) << outcome.error << outcome.out;
  const bool infeasible = outcome.exit == 3;
  const std::string& said = infeasible ? outcome.out : outcome.error;
  for (const std::string words : mistake.at("expect"))
    EXPECT_NE(said.find(words), std::string::npos) << "'" << words << "' is not in:\n" << said;
  if (infeasible) return;
  for (const char* part : {"braid: error: ", "\n  where: ", "\n  fix:   "})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_EQ(outcome.out, "");
}

INSTANTIATE_TEST_SUITE_P(All, Mistakes, testing::ValuesIn(mistakes()),
                         [](const auto& test) { return test.param.stem().string(); });

}  // namespace
}  // namespace braid
