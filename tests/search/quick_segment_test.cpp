// The quick choice of strategies where there is nothing to choose from.

#include <gtest/gtest.h>

#include <limits>

#include "planner/search/layer_search.h"

namespace braid {
namespace {

TEST(QuickSegment, WithoutAnOptionOfFiniteCostIsNone) {
  const Transitions transitions;
  for (const double load :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    LayerMenu endless, sound;
    endless.options.resize(1);
    endless.options[0].load = load;
    sound.options.resize(1);
    sound.options[0].load = 1;
    const LayerMenu* layers[] = {&sound, &endless, &sound};
    SegmentProblem problem;
    problem.layers = layers;
    problem.transitions = &transitions;
    problem.budget = 1 << 20;
    EXPECT_FALSE(quick_segment(problem).has_value()) << load;
    layers[1] = &sound;
    EXPECT_TRUE(quick_segment(problem).has_value()) << load;
  }
}

}  // namespace
}  // namespace braid
