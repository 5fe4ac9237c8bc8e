#include "planner/validate/score.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "planner/core/error.h"
#include "planner/validate/complete.h"
#include "planner/validate/possible.h"

namespace braid {
namespace {

// Seconds of an iteration, however the source writes them.
std::optional<double> measured_seconds(const MeasuredRun& run, const ModelShape& model,
                                       const RunSplit& split) {
  const double samples = static_cast<double>(split.micro_batch) * split.micro_batches * split.dp;
  if (run.seconds) return run.seconds;
  if (run.tokens) return samples * model.seq / (*run.tokens * run.gpus);
  if (run.samples) return samples / *run.samples;
  return std::nullopt;
}

class RunPricer {
 public:
  RunPricer(const MeasuredRun& run, const RunSetup& setup, Pricing& pricing)
      : run_(run), setup_(setup), pricing_(pricing) {}

  void price_all() {
    if (!run_.nonsense.empty()) return refuse(run_.nonsense);
    const ModelShape model = shape_of(run_);
    if (const auto why = why_impossible(run_, model)) return refuse(*why);
    if (run_.activation_share) {
      add("activations", share_of_plain(model), *run_.activation_share);
      return;
    }
    const RunSplit split = complete(run_, model, setup_);
    if (const auto seconds = measured_seconds(run_, model, split)) {
      const RunPrediction prediction = price(model, split, setup_);
      add("seconds", prediction.seconds, *seconds);
      PricedFigure& figure = pricing_.figures.back();
      figure.rankable = true;
      figure.lower = prediction.lower;
      figure.upper = prediction.upper;
      figure.bound = prediction.bound;
      return;
    }
    // The first stage keeps the most activations; states are those of a stage without a table.
    const RunMemory memory = memory_of(model, split, 0);
    const int middle = static_cast<int>(split.stages.size()) / 2;
    if (run_.states) add("states", memory_of(model, split, middle).states, *run_.states);
    if (run_.activations) add("activations", memory.activations, *run_.activations);
    if (run_.peak) add("peak", memory.total(), *run_.peak);
    // Memory by ranks is scored by itself.
    const bool measured = run_.states || run_.activations || run_.peak || !run_.ranks.empty();
    if (!measured) pricing_.unpriced.push_back({&run_, "nothing above zero was measured of it"});
  }

 private:
  void refuse(const std::string& why) { pricing_.refused.push_back({&run_, why}); }

  void add(std::string what, double predicted, double measured) {
    pricing_.figures.push_back(
        {.run = &run_, .what = std::move(what), .outturn = {predicted, measured}});
  }

  // Korthikanti's figure 7: of what tensor parallelism alone keeps for a block, in percent.
  double share_of_plain(const ModelShape& model) const {
    MeasuredRun plain = run_, asked = run_;
    plain.recompute = "none";
    for (MeasuredRun* one : {&plain, &asked}) {
      one->tp = 8;
      one->pp = one->dp = one->micro_batch = one->global_batch = 1;
      one->gpus = 8;
    }
    const auto kept = [&](const MeasuredRun& run) {
      return memory_of(model, complete(run, model, setup_), 0).activations;
    };
    return 100 * kept(asked) / kept(plain);
  }

  const MeasuredRun& run_;
  const RunSetup& setup_;
  Pricing& pricing_;
};

using GroupKey = std::tuple<std::string, std::string, int, int, int, int, int, int>;

GroupKey group_of(const MeasuredRun& run) {
  return {run.model, run.gpu, run.hidden, run.layers,
          run.heads, run.seq, run.gpus,   run.global_batch};
}

struct Group {
  std::vector<Outturn> pairs;
  std::vector<double> measured;
};

void rank(const std::map<GroupKey, Group>& groups, SetScore& score) {
  double ranked = 0, correlation = 0;
  double chosen = 0, excess = 0;
  for (const auto& [key, group] : groups) {
    const auto size = static_cast<double>(group.pairs.size());
    if (group.pairs.size() < 2) continue;
    const auto pick = std::ranges::min_element(group.pairs, {}, &Outturn::predicted);
    excess +=
        regret_of(group.measured, static_cast<std::size_t>(pick - group.pairs.begin())).excess;
    ++chosen;
    if (group.pairs.size() < 3) continue;
    if (const auto one = spearman(group.pairs)) {
      correlation += size * *one;
      ranked += size;
    }
  }
  if (ranked > 0) score.spearman = correlation / ranked;
  if (chosen > 0) score.regret = excess / chosen;
}

double ninth_decile(std::span<const Outturn> pairs) {
  std::vector<double> errors;
  errors.reserve(pairs.size());
  for (const Outturn& pair : pairs) errors.push_back(std::abs(pair.error()));
  std::ranges::sort(errors);
  return errors.empty() ? 0 : errors[(errors.size() * 9 - 1) / 10];
}

// From 150 ranks of PyTorch programs under Aceso's and Mist's plans: half of them reserve 10% more
// than they allocate, one of them more than 21%; none more than 93.7% of the device, whose context
// and libraries keep the rest.
constexpr double kSafeReserve = 1.21;
constexpr double kReservable = 0.94;

}  // namespace

double safe_reserve(double allocated, double device_memory) {
  return std::max(allocated, std::min(kSafeReserve * allocated, kReservable * device_memory));
}

ReserveScore score_reserves(std::span<const MeasuredRun> runs,
                            const std::vector<RunSetup>& setups) {
  ReserveScore score;
  for (const MeasuredRun& run : runs) {
    const RunSetup* setup = setup_of(setups, run);
    if (setup == nullptr) continue;
    for (const MeasuredRank& rank : run.ranks) {
      const double kept = safe_reserve(rank.allocated, setup->devices.front().memory);
      ++score.ranks;
      if (kept < rank.reserved) ++score.under;
      score.over += kept / rank.reserved - 1;
    }
  }
  if (score.ranks > 0) score.over /= score.ranks;
  return score;
}

Pricing price_runs(std::span<const MeasuredRun> runs, const std::vector<RunSetup>& setups) {
  Pricing pricing;
  for (const MeasuredRun& run : runs) {
    if (run.failed) continue;
    const RunSetup* setup = setup_of(setups, run);
    if (setup == nullptr) {
      pricing.unpriced.push_back({&run, "no setup is described for its set and device"});
      continue;
    }
    try {
      RunPricer(run, *setup, pricing).price_all();
    } catch (const Error& error) {
      pricing.unpriced.push_back({&run, error.mistake().what});
    }
  }
  return pricing;
}

std::vector<SetScore> score(const Pricing& pricing) {
  std::vector<std::string> order;
  const auto note = [&order](const std::string& set) {
    if (std::ranges::find(order, set) == order.end()) order.push_back(set);
  };
  for (const PricedFigure& figure : pricing.figures) note(figure.run->set);
  for (const UnpricedRun& run : pricing.unpriced) note(run.run->set);
  for (const UnpricedRun& run : pricing.refused) note(run.run->set);
  std::vector<SetScore> scores;
  for (const std::string& set : order) {
    SetScore one{.set = set};
    std::vector<Outturn> pairs;
    std::map<GroupKey, Group> groups;
    const MeasuredRun* last = nullptr;
    for (const PricedFigure& figure : pricing.figures) {
      if (figure.run->set != set) continue;
      pairs.push_back(figure.outturn);
      if (figure.run != last) ++one.rows;
      last = figure.run;
      if (!figure.rankable) continue;
      ++one.times;
      const double measured = figure.outturn.measured;
      if (figure.lower <= measured && measured <= figure.upper) ++one.within;
      if (measured < figure.bound) ++one.below_bound;
      Group& group = groups[group_of(*figure.run)];
      group.pairs.push_back(figure.outturn);
      group.measured.push_back(measured);
    }
    const auto count = [&](const std::vector<UnpricedRun>& runs) {
      return static_cast<int>(
          std::ranges::count_if(runs, [&](const UnpricedRun& run) { return run.run->set == set; }));
    };
    one.unpriced = count(pricing.unpriced);
    one.refused = count(pricing.refused);
    one.error = mean_absolute_error(pairs).value_or(0);
    one.most = ninth_decile(pairs);
    rank(groups, one);
    scores.push_back(one);
  }
  return scores;
}

}  // namespace braid
