#include "cli/reprice.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

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

bool has_prediction(const Plan& plan) { return !plan.prediction.stages.empty(); }

Plan read_priced(const std::string& file) {
  const Plan plan = read_plan(file);
  return has_prediction(plan) ? plan : priced(plan, profile_of(plan, file, ""));
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

std::string stale_figure(const Plan& file, const Plan& fresh) {
  const Prediction& p = file.prediction;
  const Prediction& q = fresh.prediction;
  const auto differs = [](double x, double y) {
    return !(std::abs(x - y) <= kSame * std::max(std::abs(x), std::abs(y)));
  };
  const auto told = [](const std::string& name, const std::string& stored, const std::string& now) {
    return fmt::format("{}{} in the file, {} priced anew", name, stored, now);
  };
  const auto times = [&](const std::string& name, Seconds stored, Seconds now) {
    return differs(stored.value(), now.value())
               ? told(name, format_seconds(stored), format_seconds(now))
               : std::string();
  };
  const auto sizes = [&](const std::string& name, Bytes stored, Bytes now) {
    return differs(static_cast<double>(stored.value()), static_cast<double>(now.value()))
               ? told(name, format_bytes(stored), format_bytes(now))
               : std::string();
  };
  if (std::string text = times("", p.iteration, q.iteration); !text.empty()) return text;
  if (p.stages.size() != q.stages.size())
    return told("stages: ", std::to_string(p.stages.size()), std::to_string(q.stages.size()));
  for (std::size_t i = 0; i < p.stages.size(); ++i) {
    const StagePrediction &a = p.stages[i], &b = q.stages[i];
    const std::string stage = fmt::format("stage {}'s ", i);
    for (const StageTimeField& field : kStageTimeFields)
      if (std::string text = times(fmt::format("{}{} ", stage, spaced(field.name)),
                                   a.times.*field.member, b.times.*field.member);
          !text.empty())
        return text;
    if (std::string text = sizes(stage + "memory ", a.peak, b.peak); !text.empty()) return text;
    if (std::string text = sizes(stage + "budget ", a.budget, b.budget); !text.empty()) return text;
    for (const MemoryField& field : kMemoryFields)
      if (std::string text = sizes(fmt::format("{}{} ", stage, spaced(field.name)),
                                   a.memory.*field.member, b.memory.*field.member);
          !text.empty())
        return text;
    if (differs(a.in_flight, b.in_flight))
      return told(stage + "micro-batches in flight ", fmt::format("{:g}", a.in_flight),
                  fmt::format("{:g}", b.in_flight));
  }
  return {};
}

bool same_prediction(const Plan& a, const Plan& b) { return stale_figure(a, b).empty(); }

}  // namespace braid::cli
