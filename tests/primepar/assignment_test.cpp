// The optimiser against brute force, exactly.

#include "planner/primepar/assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace braid {
namespace {

template <class T>
CostTable<T> random_table(std::mt19937& random, std::size_t rows, std::size_t columns) {
  std::uniform_int_distribution<int> cost(0, 1000);
  CostTable<T> table(rows, columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) table(i, j) = cost(random);
  return table;
}

template <class T>
CostTable<T> naive_product(const CostTable<T>& a, const CostTable<T>& b) {
  CostTable<T> result(a.rows(), b.columns(), std::numeric_limits<T>::max());
  for (std::size_t i = 0; i < a.rows(); ++i)
    for (std::size_t k = 0; k < a.columns(); ++k)
      for (std::size_t j = 0; j < b.columns(); ++j)
        result(i, j) = std::min<T>(result(i, j), a(i, k) + b(k, j));
  return result;
}

TEST(MinPlus, ProductsOfEveryShapeAreThoseOfThreeLoops) {
  std::mt19937 random(2);
  constexpr std::size_t kShapes[][3] = {{1, 1, 1},  {3, 5, 2},    {4, 4, 4},     {7, 66, 33},
                                        {5, 3, 70}, {9, 131, 17}, {6, 129, 1030}};
  for (const auto& [rows, depth, columns] : kShapes) {
    const auto a = random_table<Ticks>(random, rows, depth);
    const auto b = random_table<Ticks>(random, depth, columns);
    EXPECT_EQ(min_plus(a, b), naive_product(a, b)) << rows << "×" << depth << "×" << columns;
    const auto wide_a = random_table<std::int64_t>(random, rows, depth);
    const auto wide_b = random_table<std::int64_t>(random, depth, columns);
    EXPECT_EQ(min_plus(wide_a, wide_b), naive_product(wide_a, wide_b));
  }
}

TEST(MinPlus, APowerIsAsManyLinksInARow) {
  std::mt19937 random(3);
  const auto link = random_table<std::int64_t>(random, 9, 9);
  Table64 chain = link;
  for (int layers = 1; layers <= 13; ++layers) {
    EXPECT_EQ(min_plus_power(link, layers), chain) << layers << " layers";
    chain = naive_product(chain, link);
  }
}

struct RandomProblem {
  AssignmentProblem problem;
  std::vector<Table32> tables;
};

RandomProblem random_problem(std::mt19937& random, const std::vector<std::size_t>& states,
                             const std::vector<std::pair<int, int>>& skips) {
  RandomProblem made;
  std::uniform_int_distribution<int> cost(0, 1000);
  std::vector<std::pair<int, int>> edges = skips;
  for (int i = 0; i + 1 < static_cast<int>(states.size()); ++i) edges.emplace_back(i, i + 1);
  for (const std::size_t count : states) {
    std::vector<Ticks> costs(count);
    std::ranges::generate(costs, [&] { return cost(random); });
    made.problem.nodes.push_back(std::move(costs));
  }
  made.tables.reserve(edges.size());
  for (const auto& [from, to] : edges) {
    made.tables.push_back(random_table<Ticks>(random, states[static_cast<std::size_t>(from)],
                                              states[static_cast<std::size_t>(to)]));
    made.problem.edges.push_back({from, to, &made.tables.back()});
  }
  return made;
}

void expect_equal_to_brute_force(const AssignmentProblem& problem) {
  const SolvedAssignment solved(problem);
  const Table32& link = solved.link();
  for (std::size_t i = 0; i < link.rows(); ++i)
    for (std::size_t j = 0; j < link.columns(); ++j) {
      const std::int64_t least = cost_of(problem, brute_force(problem, i, j));
      EXPECT_EQ(link(i, j) + problem.nodes.front()[i], least);
      EXPECT_EQ(cost_of(problem, solved.between(i, j)), least) << "the choice costs what it says";
    }
}

TEST(Assignment, EqualsBruteForceOnGraphsThatNestAndFollow) {
  std::mt19937 random(4);
  const std::vector<std::pair<int, int>> kSkips[] = {{},
                                                     {{0, 2}},
                                                     {{0, 5}},
                                                     {{1, 4}},
                                                     {{0, 3}, {3, 5}},
                                                     {{0, 5}, {1, 4}, {1, 3}},
                                                     {{2, 5}, {2, 4}}};
  for (const auto& skips : kSkips)
    for (int trial = 0; trial < 3; ++trial)
      expect_equal_to_brute_force(random_problem(random, {3, 2, 4, 3, 2, 4}, skips).problem);
}

// A layer's own edges, three states an operator: 3^13 assignments.
TEST(Assignment, EqualsBruteForceOnTheLayersGraph) {
  std::mt19937 random(5);
  const std::vector<std::size_t> states(13, 3);
  const RandomProblem made = random_problem(random, states, {{2, 5}, {0, 7}, {7, 12}});
  const SolvedAssignment solved(made.problem);
  const Assignment best = brute_force(made.problem);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      least = std::min<std::int64_t>(least, solved.link()(i, j) + made.problem.nodes[0][i]);
  EXPECT_EQ(least, cost_of(made.problem, best));
  EXPECT_EQ(cost_of(made.problem, solved.between(best.front(), best.back())), least);
}

}  // namespace
}  // namespace braid
