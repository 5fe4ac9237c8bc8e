#include "planner/validate/possible.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "planner/core/limits.h"

namespace braid {
namespace {

// A degree that the source does not say is one.
std::int64_t at_least_one(int degree) { return std::max(1, degree); }

std::optional<std::string> wrong_degrees(const MeasuredRun& run) {
  const std::int64_t tp = at_least_one(run.tp), pp = at_least_one(run.pp),
                     cp = at_least_one(run.cp);
  if (run.tp == 0 || run.gpus == 0) return std::nullopt;  // its split is searched
  if (run.dp > 0) {
    // By division: the product of four degrees may not fit in an integer.
    const bool fills = run.gpus % tp == 0 && run.gpus / tp % pp == 0 &&
                       run.gpus / tp / pp % cp == 0 && run.gpus / tp / pp / cp == run.dp;
    if (!fills)
      return fmt::format("tp {} · pp {} · cp {} · dp {} is not its {} devices", tp, pp, cp, run.dp,
                         run.gpus);
  } else if (run.gpus % tp != 0 || run.gpus / tp % pp != 0 || run.gpus / tp / pp % cp != 0) {
    return fmt::format("tp {} · pp {} · cp {} does not divide its {} devices", tp, pp, cp,
                       run.gpus);
  }
  return std::nullopt;
}

std::optional<std::string> wrong_cut(const MeasuredRun& run, const ModelShape& model) {
  const auto stages = static_cast<std::int64_t>(
      run.stage_gpus.empty() ? at_least_one(run.pp) : std::ssize(run.stage_gpus));
  if (stages > model.num_blocks())
    return fmt::format("{} stages of {} blocks", stages, model.num_blocks());
  if (std::ranges::adjacent_find(run.partition, std::greater_equal()) != run.partition.end())
    return "its partition does not ascend";
  // Cutting at the best places looks at every pair of places for every stage.
  constexpr std::int64_t kMostPlaces = std::int64_t{1} << 28;
  const auto items = static_cast<std::int64_t>(model.items.size());
  if (!run.stage_gpus.empty() && stages > kMostPlaces / (items * items))
    return fmt::format("{} stages of {} parts are too many to cut", stages, items);
  const std::int64_t micro_batches = run.global_batch / at_least_one(run.micro_batch);
  const std::int64_t chunks = stages * run.interleave;
  if (micro_batches > limits::kPasses.high / chunks)
    return fmt::format("{} micro-batches through {} parts of the model are too many to play",
                       micro_batches, chunks);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> why_impossible(const MeasuredRun& run, const ModelShape& model) {
  if (!run.nonsense.empty()) return run.nonsense;
  if (run.tp > 0 && run.heads > 0 && run.heads % run.tp != 0)
    return fmt::format("tp {} does not divide its {} heads", run.tp, run.heads);
  if (const auto wrong = wrong_degrees(run)) return wrong;
  return wrong_cut(run, model);
}

}  // namespace braid
