// Text and JSON of one answer have the same figures.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/core/json.h"
#include "planner/core/text.h"
#include "tests/cli/program.h"

namespace braid {
namespace {

using testing::HasSubstr;

// A figure of the text, made from the JSON.
struct Figure {
  std::string key, shown;
};

double number(const Json& json, const char* key) { return json.at(key).get<double>(); }

std::vector<Figure> headline_figures(const Json& p) {
  const auto percent = [](double fraction) {
    return fraction >= 0.1 ? fmt::format("{:.0f}%", fraction * 100)
                           : fmt::format("{:.2g}%", fraction * 100);
  };
  return {
      {"iteration_seconds", format_seconds(Seconds(number(p, "iteration_seconds")))},
      {"samples_per_second", fmt::format("{:.4g} samples/s", number(p, "samples_per_second"))},
      {"tokens_per_second", format_count(number(p, "tokens_per_second")) + " tokens/s"},
      {"mfu", format_percent(number(p, "mfu")) + "   ="},
      {"flops_per_sample",
       fmt::format("{:.4g} GFLOP a sample", number(p, "flops_per_sample") / 1e9)},
      {"physics_bound_seconds", format_seconds(Seconds(number(p, "physics_bound_seconds")))},
      {"physics_excess", number(p, "physics_excess") >= 9
                             ? fmt::format("{:.0f} times", number(p, "physics_excess") + 1)
                             : percent(number(p, "physics_excess")) + " slower"},
  };
}

std::vector<Figure> time_figures(const Json& p) {
  const double iteration = number(p, "iteration_seconds");
  std::vector<Figure> figures;
  for (const auto& [name, seconds] : p.at("time").at("seconds").items())
    figures.push_back({name, fmt::format("{:.2f} ms", seconds.get<double>() * 1e3)});
  figures.push_back({"bubble_fraction", format_percent(number(p, "bubble_fraction"))});
  figures.push_back({"iteration", fmt::format("{:.2f} ms", iteration * 1e3)});
  return figures;
}

std::vector<Figure> memory_figures(const Json& p) {
  std::vector<Figure> figures;
  for (const Json& stage : p.at("memory_bytes"))
    for (const char* part : {"weights", "gradients", "optimizer", "activations", "workspace",
                             "slack", "overhead", "peak", "budget"})
      figures.push_back({part, fmt::format("{:.2f}", number(stage, part) / (1 << 30))});
  return figures;
}

void expect_shown(const Json& predicted, const std::string& text) {
  for (const auto& list :
       {headline_figures(predicted), time_figures(predicted), memory_figures(predicted)})
    for (const Figure& figure : list) EXPECT_THAT(text, HasSubstr(figure.shown)) << figure.key;
}

class Figures : public testing::Test {
 protected:
  Figures() { make_plan(folder_.path(), {"--pp", "2"}); }
  std::string text_of(const std::vector<std::string>& words) const {
    const Outcome outcome = run_braid(words, folder_.path());
    EXPECT_EQ(outcome.exit, 0) << outcome.error;
    return outcome.out;
  }
  Json answer_of(std::vector<std::string> words) const {
    words.insert(words.end(), {"--format", "json"});
    return json_of(run_braid(words, folder_.path()));
  }

  InputFolder folder_;
};

TEST_F(Figures, OfAPlanAreInTextAndJson) {
  const auto command = plan_command({"--pp", "2"});
  const std::string text = text_of(command);
  const Json answer = answer_of(command);
  expect_shown(answer.at("predicted"), text);
  for (const char* side : {"time", "memory"})
    EXPECT_THAT(text, HasSubstr(fmt::format("{:.3f}", number(answer.at("balance"), side))));
  EXPECT_EQ(answer.at("predicted").at("gap"), answer.at("search").at("gap"));
  EXPECT_THAT(text, HasSubstr(fmt::format("{} of {} configurations",
                                          answer.at("search").at("open").get<int>(),
                                          answer.at("search").at("configurations").get<int>())));
}

TEST_F(Figures, OfAFileAreInTextAndJson) {
  for (const char* verb : {"explain", "price"}) {
    SCOPED_TRACE(verb);
    expect_shown(answer_of({verb, "plan.json"}).at("predicted"), text_of({verb, "plan.json"}));
  }
}

TEST_F(Figures, OfACheckAreInTextAndJson) {
  const std::string text = text_of({"check", "plan.json"});
  const Json answer = answer_of({"check", "plan.json"});
  EXPECT_THAT(text, HasSubstr(format_seconds(Seconds(number(answer, "iteration_seconds")))));
  for (const Json& stage : answer.at("stages"))
    EXPECT_THAT(text, HasSubstr(fmt::format(
                          "{} of {}",
                          format_bytes(Bytes(stage.at("peak_memory_bytes").get<std::int64_t>())),
                          format_bytes(Bytes(stage.at("budget_bytes").get<std::int64_t>())))));
  EXPECT_GT(number(answer.at("predicted"), "mfu"), 0);
}

TEST_F(Figures, OfASimulationAreInTextAndJson) {
  const std::string text = text_of({"simulate", "plan.json"});
  const Json answer = answer_of({"simulate", "plan.json"});
  EXPECT_THAT(text, HasSubstr(format_seconds(Seconds(number(answer, "iteration_seconds")))));
  for (const Json& stage : answer.at("stages")) {
    EXPECT_THAT(text, HasSubstr(format_percent(number(stage, "busy_fraction"))));
    EXPECT_NEAR(number(stage, "busy_fraction") +
                    number(stage, "bubble_seconds") / number(answer, "iteration_seconds"),
                1, 1e-6);
  }
  EXPECT_EQ(answer.at("predicted").at("iteration_seconds"), answer.at("iteration_seconds"));
}

}  // namespace
}  // namespace braid
