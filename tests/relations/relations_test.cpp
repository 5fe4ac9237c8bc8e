// Random questions, and the relations that every answer must satisfy.
//
// BRAID_QUESTION=SEED asks one question and checks all relations.
// BRAID_LONG_TESTS=1 asks thousands, on all cores.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "planner/core/parallel.h"
#include "tests/relations/relations.h"

namespace braid {
namespace {

constexpr int kQuestions = 40;  // of one test

// Searches are what takes time: of the relations that search, a question checks one in four, so
// that four consecutive questions check all.
bool is_due(const Relation& relation, std::size_t index, std::uint64_t seed) {
  return relation.searches == 0 || (seed + index) % 4 == 0;
}

std::string check(const Relation& relation, const Answered& answered) {
  try {
    const Violation wrong = relation.violated(answered);
    return wrong ? *wrong : "";
  } catch (const std::exception& error) {
    return fmt::format("throws: {}", error.what());
  }
}

struct Violated {
  std::string relation, question, wrong;
};

std::vector<Violated> violations(std::uint64_t seed) {
  const Answered answered(random_question(seed));
  std::vector<Violated> found;
  for (std::size_t k = 0; k < all_relations().size(); ++k) {
    const Relation& relation = all_relations()[k];
    if (!is_due(relation, k, seed)) continue;
    if (const std::string wrong = check(relation, answered); !wrong.empty())
      found.push_back({std::string(relation.name), describe(answered.question()), wrong});
  }
  return found;
}

class RandomQuestions : public testing::TestWithParam<int> {};

TEST_P(RandomQuestions, AreAnsweredConsistently) {
  for (int i = 0; i < kQuestions; ++i) {
    const auto seed = static_cast<std::uint64_t>(GetParam() * kQuestions + i);
    for (const Violated& v : violations(seed))
      ADD_FAILURE() << v.relation << ": " << v.wrong << "\n" << v.question;
  }
}

INSTANTIATE_TEST_SUITE_P(Quick, RandomQuestions, testing::Range(0, 10));

// An answer with a gap is the best that limited work has found. A walk of some hundred prices that
// finds much faster plans shows where that work is spent badly.
TEST(RandomWalks, RarelyFindMuchFasterPlans) {
  constexpr int kWalks = 200;
  constexpr double kMuch = 1.03;
  int faster = 0;
  std::string which;
  for (int seed = 0; seed < kWalks; ++seed) {
    const Answered answered(random_question(static_cast<std::uint64_t>(seed)));
    if (answered.plan() == nullptr || answered.answer().gap() < kMuch - 1) continue;
    const double found = fastest_of_a_walk(answered).prediction.iteration.value();
    if (kMuch * found >= time_of(answered.answer())) continue;
    ++faster;
    which += fmt::format(" {} ({:.1f}%)", seed, 100 * (time_of(answered.answer()) / found - 1));
  }
  EXPECT_LE(faster, kWalks * 6 / 100) << "questions" << which;
  RecordProperty("faster", faster);
}

// Behind a switch, and on all cores: BRAID_LONG_TESTS=1.
class ManyQuestions : public testing::TestWithParam<int> {};

TEST_P(ManyQuestions, AreAnsweredConsistently) {
  constexpr std::size_t kMany = 500;
  std::vector<std::vector<Violated>> found(kMany);
  std::atomic<int> done = 0;
  parallel_for(kMany, static_cast<int>(std::thread::hardware_concurrency()), [&](std::size_t i) {
    found[i] = violations(static_cast<std::uint64_t>(GetParam()) * kMany + i);
    if (++done % 100 == 0) fmt::print("{} of {} questions\n", done.load(), kMany);
  });
  for (const std::vector<Violated>& of_one : found)
    for (const Violated& v : of_one)
      ADD_FAILURE() << v.relation << ": " << v.wrong << "\n" << v.question;
}

INSTANTIATE_TEST_SUITE_P(Long, ManyQuestions,
                         testing::Range(1, std::getenv("BRAID_LONG_TESTS") != nullptr ? 11 : 1));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ManyQuestions);

TEST(OneQuestion, IsAnsweredConsistently) {
  const char* seed = std::getenv("BRAID_QUESTION");
  if (seed == nullptr) GTEST_SKIP() << "BRAID_QUESTION names none";
  const Answered answered(random_question(std::stoull(seed)));
  for (const Relation& relation : all_relations()) {
    const std::string wrong = check(relation, answered);
    EXPECT_EQ(wrong, "") << relation.name << "\n" << describe(answered.question());
  }
}

}  // namespace
}  // namespace braid
