#include "cli/reprice.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/cost/make_cost_model.h"
#include "planner/explain/utilisation.h"
#include "planner/plan/prediction_fields.h"
#include "planner/search/certificate.h"
#include "planner/simulate/price_plan.h"

namespace braid::cli {
namespace {

constexpr double kSame = 1e-9;  // relative; the order of a sum may differ, prices may not

void change_batch(Plan& plan, std::int64_t batch) {
  const std::int64_t step = plan.micro_batch() * (plan.shape.chunks > 1 ? plan.shape.stages : 1);
  const std::int64_t micro_batches = batch / plan.micro_batch();
  if (batch % step != 0 || micro_batches > limits::kMicroBatches.high)
    throw Error(
        {.what = fmt::format("a global batch of {} is not made of this plan's micro-batches "
                             "of {} samples",
                             batch, plan.micro_batch()),
         .where = "--global-batch",
         .fix = fmt::format("choose a multiple of {}, or plan anew: braid plan "
                            "--global-batch {}",
                            step, batch)});
  plan.global_batch = batch;
  plan.shape.micro_batches = static_cast<int>(micro_batches);
}

void change_devices(Plan& plan, int devices) {
  const int before = plan.cluster.num_devices();
  plan.cluster = shrink(plan.cluster, devices);
  for (StagePlan& stage : plan.stages)
    for (Strategy& s : stage.strategies) {
      const std::int64_t scaled_dp = std::int64_t{s.dp} * devices;
      if (scaled_dp % before != 0)
        throw Error({.what = fmt::format("'{}' cannot be stretched from {} to {} devices: its "
                                         "replicas do not scale",
                                         to_string(s), before, devices),
                     .where = "--devices",
                     .fix = fmt::format("plan anew: braid plan --devices {}", devices)});
      s.dp = static_cast<int>(scaled_dp / before);
      // One replica has nobody to share its states with: ZeRO then names the same layout as none.
      if (s.replicas() == 1) s.zero = Zero::none;
    }
}

std::string spaced(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

std::filesystem::path path_of(const ProfileReference& reference, const std::string& plan_file) {
  std::filesystem::path named = reference.file;
  std::error_code code;
  if (named.is_absolute() || std::filesystem::exists(named, code)) return named;
  // A plan and its profile that moved together are still together.
  return std::filesystem::path(plan_file).parent_path() / named;
}

bool needs_profile(const Plan& plan) { return uses_profile(plan.cost); }

}  // namespace

Plan changed(const Plan& plan, const WhatIf& question, const std::string& source) {
  Plan result = plan;
  if (question.sequence) result.model = with_sequence(plan.model, *question.sequence);
  if (question.global_batch) change_batch(result, *question.global_batch);
  if (question.devices) change_devices(result, static_cast<int>(*question.devices));
  if (question.memory) {
    expect_limit_within(result.cluster, *question.memory, "--memory");
    result.memory_limit = *question.memory;
  }
  verify(result, fmt::format("{} under these flags", source));
  return result;
}

Plan load_plan(const std::string& file) {
  const Json json = read_json(file);
  Plan plan = plan_from_json(json, file);
  const Json& model = json.at("model");
  if (!model.is_string()) return plan;
  const std::filesystem::path named =
      std::filesystem::path(file).parent_path() / model.get<std::string>();
  for (const std::string& warning : config_warnings(read_json(named), named.string()))
    note(warning);
  return plan;
}

bool has_prediction(const Plan& plan) { return !plan.prediction.stages.empty(); }

Plan read_priced(const std::string& file) {
  Plan plan = load_plan(file);
  if (has_prediction(plan)) {
    try {
      expect_possible(plan);
      return plan;
    } catch (const Error& error) {
      note(fmt::format("the plan's stored prediction is impossible, it is priced anew: {}",
                       error.mistake().what));
    }
  }
  return priced(plan, profile_of(plan, file, ""));
}

bool profile_missing(const Plan& plan, const std::string& plan_file, const std::string& given) {
  if (!given.empty() || !needs_profile(plan)) return false;
  std::error_code code;
  return !plan.profile || !std::filesystem::exists(path_of(*plan.profile, plan_file), code);
}

std::optional<LoadedProfile> profile_of(const Plan& plan, const std::string& plan_file,
                                        const std::string& given) {
  if (!given.empty()) return load_profile(given);
  if (!needs_profile(plan)) return std::nullopt;
  const auto error = [&](std::string what) {
    return Error({.what = std::move(what),
                  .where = fmt::format("{}: profile", plan_file),
                  .fix = "pass --profile FILE to price the plan with"});
  };
  if (!plan.profile)
    throw error(
        fmt::format("the plan was priced as '{}' and names no profile", name_of(plan.cost)));
  const ProfileReference& reference = *plan.profile;
  if (profile_missing(plan, plan_file, given))
    throw error(fmt::format("the profile '{}' that priced the plan is missing", reference.file));
  LoadedProfile loaded = load_profile(path_of(reference, plan_file));
  if (loaded.reference.fingerprint != reference.fingerprint)
    throw error(
        fmt::format("the profile '{}' has changed since it priced the plan", reference.file));
  loaded.reference.file = reference.file;
  return loaded;
}

Plan priced(const Plan& plan, const std::optional<LoadedProfile>& profile) {
  Plan fresh = plan;
  if (profile) {
    fresh.profile = profile->reference;
    if (!uses_profile(fresh.cost)) fresh.cost = CostKind::measured;
    expect_holds(*profile, fresh.model, fresh.cluster, fresh.precision);
  }
  const auto cost =
      make_cost_model({.kind = fresh.cost,
                       .precision = fresh.precision,
                       .gradient_precision = fresh.gradient_precision,
                       .global_batch = fresh.global_batch},
                      fresh.model, fresh.cluster, profile ? &profile->profile : nullptr);
  fresh.prediction = price_plan(fresh, *cost);
  if (!same_prediction(fresh, plan)) fresh.certificate = {};
  fresh.certificate.physics_bound =
      physics_bound(fresh.model, fresh.cluster, fresh.global_batch, fresh.precision).total();
  expect_possible(fresh);
  return fresh;
}

namespace {

constexpr const char* kNotProven = "not proven";

// Collects the figures in which a file and its fresh prices differ.
class Comparer {
 public:
  void numbers(const std::string& name, double stored, double now) {
    if (differs(stored, now)) add(name, fmt::format("{:g}", stored), fmt::format("{:g}", now));
  }
  void times(const std::string& name, double stored, double now) {
    if (differs(stored, now))
      add(name, format_seconds(Seconds(stored)), format_seconds(Seconds(now)));
  }
  void times(const std::string& name, Seconds stored, Seconds now) {
    times(name, stored.value(), now.value());
  }
  void sizes(const std::string& name, Bytes stored, Bytes now) {
    if (differs(static_cast<double>(stored.value()), static_cast<double>(now.value())))
      add(name, format_bytes(stored), format_bytes(now));
  }
  void add(const std::string& name, std::string stored, std::string now) {
    // Digits that tell the two apart are behind those shown.
    if (stored == now) now = "a little else";
    found_.push_back({name, std::move(stored), std::move(now)});
  }
  std::vector<StaleFigure> take() { return std::move(found_); }

 private:
  static bool differs(double x, double y) {
    return !(std::abs(x - y) <= kSame * std::max(std::abs(x), std::abs(y)));
  }

  std::vector<StaleFigure> found_;
};

void compare_stage(const StagePrediction& a, const StagePrediction& b, const std::string& stage,
                   Comparer& compare) {
  for (const StageTimeField& field : kStageTimeFields)
    compare.times(stage + spaced(field.name), a.times.*field.member, b.times.*field.member);
  compare.sizes(stage + "memory", a.peak, b.peak);
  compare.sizes(stage + "budget", a.budget, b.budget);
  const auto memory = [&](const MemoryField& field) {
    compare.sizes(stage + spaced(field.name), a.memory.*field.member, b.memory.*field.member);
  };
  std::ranges::for_each(kMemoryFields, memory);
  std::ranges::for_each(kOptionalMemoryFields, memory);
  compare.numbers(stage + "micro-batches in flight", a.in_flight, b.in_flight);
  compare.sizes(stage + "messages", a.messages, b.messages);
  compare.sizes(stage + "slack", a.slack, b.slack);
  compare.sizes(stage + "overhead", a.overhead, b.overhead);
  const auto term = [&](const TimeTermField& field) {
    compare.times(fmt::format("{}term of {}", stage, spaced(field.name)), a.terms.*field.member,
                  b.terms.*field.member);
  };
  std::ranges::for_each(kTimeTermFields, term);
  std::ranges::for_each(kOptionalTermFields, term);
  compare.times(stage + "redistribution", a.redistribute, b.redistribute);
}

std::vector<StaleFigure> stale_prediction(const Prediction& p, const Prediction& q) {
  Comparer compare;
  compare.times("iteration", p.iteration, q.iteration);
  if (p.stages.size() != q.stages.size()) {
    compare.add("stages", std::to_string(p.stages.size()), std::to_string(q.stages.size()));
    return compare.take();
  }
  for (std::size_t i = 0; i < p.stages.size(); ++i)
    compare_stage(p.stages[i], q.stages[i], fmt::format("stage {}'s ", i), compare);
  compare.numbers("samples a second", p.samples_per_second, q.samples_per_second);
  return compare.take();
}

}  // namespace

std::vector<StaleFigure> stale_figures(const Plan& file, const Plan& fresh) {
  if (!has_prediction(file)) return {};
  std::vector<StaleFigure> found = stale_prediction(file.prediction, fresh.prediction);
  Comparer compare;
  // A lower bound speaks of the prices that it was found with; proving it anew is a search.
  if (!found.empty() && file.certificate.lower_bound > Seconds())
    compare.add("certificate's lower bound", format_seconds(file.certificate.lower_bound),
                kNotProven);
  compare.times("certificate's physics bound", file.certificate.physics_bound,
                fresh.certificate.physics_bound);
  std::ranges::move(compare.take(), std::back_inserter(found));
  return found;
}

std::string in_words(const StaleFigure& figure) {
  const std::string name = figure.name == "iteration" ? "" : figure.name + " ";
  return fmt::format("{}{} in the file, {}{}", name, figure.stored, figure.now,
                     figure.now == kNotProven ? " for today's prices" : " priced anew");
}

std::string stale_figure(const Plan& file, const Plan& fresh) {
  const std::vector<StaleFigure> found = stale_figures(file, fresh);
  if (found.empty()) return {};
  const std::string more =
      found.size() == 1
          ? ""
          : fmt::format(" (and {} more figure{})", found.size() - 1, found.size() == 2 ? "" : "s");
  return in_words(found.front()) + more;
}

bool same_prediction(const Plan& a, const Plan& b) {
  return stale_prediction(a.prediction, b.prediction).empty();
}

}  // namespace braid::cli
