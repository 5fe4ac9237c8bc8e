#pragma once
// The learning rate as a pure function of the step: nothing to save, nothing to resume.

#include <cstdint>
#include <string>
#include <string_view>

namespace braid::train {

enum class LearningRateKind {
  constant,
  cosine,  // half a cosine from the peak to the minimum (Loshchilov and Hutter, 2017)
  wsd,     // warm-up, a long stable part, a short decay (Hu et al., 2024)
};

// How wsd falls from the peak to the minimum, as a function of the decay's progress p.
enum class DecayShape {
  linear,
  one_minus_sqrt,  // 1 - √p: steep first (Hägele et al., 2024)
};

struct LearningRate {
  LearningRateKind kind = LearningRateKind::constant;
  DecayShape decay = DecayShape::linear;
  double peak = 0;
  double minimum = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  // wsd: the length of the final decay
  std::int64_t total_steps = 0;

  // The rate of a step, counted from 0. With w steps of warm-up, step s < w has (s + 1) / (w + 1)
  // of the peak and step w the peak, so that no step is spent on a rate of zero. The decay would
  // reach the minimum at step `total_steps`; every step from there on has the minimum.
  double at(std::int64_t step) const;
};

// "constant", "cosine", "wsd" (which decays linearly) or "wsd:1-sqrt". `where` names the flag. The
// numbers are left at zero.
LearningRate parse_learning_rate(std::string_view text, std::string_view where);
std::string name_of(const LearningRate& rate);  // what parse_learning_rate reads

// Throws an Error unless the numbers make sense together.
void check(const LearningRate& rate, std::string_view where);

}  // namespace braid::train
