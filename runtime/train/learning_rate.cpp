#include "runtime/train/learning_rate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "planner/core/error.h"
#include "planner/core/text.h"

namespace braid::train {

namespace {

struct Form {
  std::string_view name;
  LearningRateKind kind;
  DecayShape decay;
};
constexpr Form kForms[] = {
    {"constant", LearningRateKind::constant, DecayShape::linear},
    {"cosine", LearningRateKind::cosine, DecayShape::linear},
    {"wsd", LearningRateKind::wsd, DecayShape::linear},
    {"wsd:1-sqrt", LearningRateKind::wsd, DecayShape::one_minus_sqrt},
};

// What is left of the distance from the minimum to the peak, at progress p from 0 to 1.
double left_at(const LearningRate& rate, double p) {
  if (rate.kind == LearningRateKind::cosine) return (1 + std::cos(std::numbers::pi * p)) / 2;
  switch (rate.decay) {
    case DecayShape::linear:
      return 1 - p;
    case DecayShape::one_minus_sqrt:
      return 1 - std::sqrt(p);
  }
  return 0;
}

// The step at which the rate starts to fall.
std::int64_t decay_start(const LearningRate& rate) {
  return rate.kind == LearningRateKind::wsd ? rate.total_steps - rate.decay_steps
                                            : rate.warmup_steps;
}

}  // namespace

double LearningRate::at(std::int64_t step) const {
  internal_check(step >= 0, "steps count from 0");
  if (step < warmup_steps)
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  if (kind == LearningRateKind::constant) return peak;
  if (step >= total_steps) return minimum;
  const std::int64_t start = decay_start(*this);
  if (step <= start) return peak;
  const double p = static_cast<double>(step - start) / static_cast<double>(total_steps - start);
  return minimum + (peak - minimum) * left_at(*this, p);
}

LearningRate parse_learning_rate(std::string_view text, std::string_view where) {
  const auto* found = std::ranges::find(kForms, text, &Form::name);
  if (found != std::end(kForms)) {
    LearningRate rate;
    rate.kind = found->kind;
    rate.decay = found->decay;
    return rate;
  }
  std::vector<std::string> names;
  for (const Form& form : kForms) names.emplace_back(form.name);
  const std::string near = nearest(text, names);
  throw Error({.what = fmt::format("'{}' is no kind of learning rate{}", text,
                                   near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
               .where = std::string(where),
               .fix = fmt::format("choose one of {}", join(names, ", "))});
}

std::string name_of(const LearningRate& rate) {
  for (const Form& form : kForms) {
    const bool same_decay = rate.kind != LearningRateKind::wsd || form.decay == rate.decay;
    if (form.kind == rate.kind && same_decay) return std::string(form.name);
  }
  return {};
}

void check(const LearningRate& rate, std::string_view where) {
  const auto fail = [&](std::string what, std::string fix) {
    throw Error({.what = std::move(what), .where = std::string(where), .fix = std::move(fix)});
  };
  if (!(rate.peak > 0) || !std::isfinite(rate.peak))
    fail(fmt::format("a learning rate of {} trains nothing", rate.peak),
         "choose a number above 0, such as 3e-4");
  if (!(rate.minimum >= 0 && rate.minimum <= rate.peak))
    fail(fmt::format("the minimum {} does not lie between 0 and the peak {}", rate.minimum,
                     rate.peak),
         fmt::format("choose a minimum from 0 to {}", rate.peak));
  if (rate.warmup_steps < 0 || rate.decay_steps < 0)
    fail(fmt::format("{} steps of warm-up and {} of decay: neither can be negative",
                     rate.warmup_steps, rate.decay_steps),
         "choose 0 or more");
  const std::int64_t decay = rate.kind == LearningRateKind::wsd ? rate.decay_steps : 0;
  // A constant rate may be of a run whose end is not known.
  const bool ends = rate.kind != LearningRateKind::constant || rate.total_steps > 0;
  // Not as a sum, which two large numbers could overflow.
  if (ends && decay > rate.total_steps - rate.warmup_steps)
    fail(fmt::format("{} steps of warm-up and {} of decay do not fit into {} steps",
                     rate.warmup_steps, decay, rate.total_steps),
         "shorten them, or train for more steps");
}

}  // namespace braid::train
