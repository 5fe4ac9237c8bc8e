#include "planner/validate/complete.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <ranges>

#include "planner/core/error.h"

namespace braid {
namespace {

constexpr int kLargestMicroBatch = 32;

[[noreturn]] void fail(const MeasuredRun& run, std::string what, std::string fix) {
  throw Error({.what = std::move(what),
               .where = fmt::format("row {} of '{}'", run.id, run.set),
               .fix = std::move(fix)});
}

// Blocks spread evenly, the first stages one more where they do not divide; what stands before the
// first block goes to the first stage, what stands after the last one to the last.
void cut_evenly(RunSplit& split, const ModelShape& model, int stages, int tp, double repeated) {
  const auto first = std::ranges::find(model.items, ItemKind::block, &Item::kind);
  const int before = static_cast<int>(first - model.items.begin());
  const int blocks = model.num_blocks();
  int end = before;
  for (int i = 0; i < stages; ++i) {
    const int begin = i == 0 ? 0 : end;
    end += blocks / stages + (i < blocks % stages ? 1 : 0);
    if (i + 1 == stages) end = static_cast<int>(model.items.size());
    split.stages.push_back({.begin = begin, .end = end, .tp = tp, .repeated = repeated});
  }
}

bool has(const std::string& text, const char* word) { return text.find(word) != std::string::npos; }

// What a run says about recomputation and number formats.
void read_words(const MeasuredRun& run, const RunSetup& setup, RunSplit& split) {
  split.flash = run.flash.value_or(setup.program.flash);
  split.sharded = setup.program.sharded || has(run.technique, "ZeRO-3");
  // torchtitan's tables of two- to four-dimensional runs are all compiled and in float8, and name
  // only what differs from row to row.
  const bool table =
      has(run.technique, "2D") || has(run.technique, "3D") || has(run.technique, "4D");
  split.fp8 = table || has(run.technique, "fp8");
  split.rowwise = has(run.technique, "rowwise");
  split.eager = !run.technique.empty() && !table && !has(run.technique, "compile");
  split.selective = has(run.recompute, "selective") || has(run.recompute, "SAC");
  split.sequence_parallel = setup.program.sequence_parallel || has(run.recompute, "SP");
}

bool repeats_all(const MeasuredRun& run) { return run.recompute == "full"; }

bool fits(const ModelShape& model, const RunSplit& split, const RunSetup& setup, int stage) {
  return memory_of(model, split, stage).total() <= setup.usable * setup.devices.front().memory;
}

bool fits(const ModelShape& model, const RunSplit& split, const RunSetup& setup) {
  for (int i = 0; i < static_cast<int>(split.stages.size()); ++i)
    if (!fits(model, split, setup, i)) return false;
  return true;
}

// The least share of repeated blocks, in eighths, with which a stage fits; all, and false, where
// none does.
bool repeat_to_fit(const ModelShape& model, const RunSetup& setup, RunSplit& split, int stage) {
  for (int eighths = 0; eighths <= 8; ++eighths) {
    split.stages[static_cast<std::size_t>(stage)].repeated = eighths / 8.0;
    if (fits(model, split, setup, stage)) return true;
  }
  return false;
}

void repeat_to_fit(const ModelShape& model, const RunSetup& setup, RunSplit& split) {
  for (int i = 0; i < static_cast<int>(split.stages.size()); ++i)
    repeat_to_fit(model, setup, split, i);
}

struct Best {
  RunSplit split;
  double seconds = std::numeric_limits<double>::infinity();
  bool fits = false;

  void offer(const RunSplit& candidate, double price, bool candidate_fits) {
    if (candidate_fits < fits || (candidate_fits == fits && price >= seconds)) return;
    split = candidate;
    seconds = price;
    fits = candidate_fits;
  }
};

// Tries the micro-batches that divide a replica's samples, or the one that is given.
void try_micro_batches(const MeasuredRun& run, const ModelShape& model, const RunSetup& setup,
                       RunSplit split, bool repeat_as_needed, Best& best) {
  const int samples = run.global_batch / split.dp;
  if (samples < 1) return;
  const int first = std::max(1, run.micro_batch);
  const int last = run.micro_batch > 0 ? run.micro_batch : std::min(samples, kLargestMicroBatch);
  for (int size = first; size <= last; ++size) {
    if (samples % size != 0) continue;
    split.micro_batch = size;
    split.micro_batches = samples / size;
    if (repeat_as_needed) repeat_to_fit(model, setup, split);
    best.offer(split, price(model, split, setup).seconds, fits(model, split, setup));
  }
}

// Cuts between blocks such that the slowest stage is as fast as it can be.
void cut_for_speed(const ModelShape& model, const RunSetup& setup, RunSplit& split) {
  const int stages = static_cast<int>(split.stages.size());
  const int items = static_cast<int>(model.items.size());
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto cell = [&](int stage, int end) {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(items + 1) +
           static_cast<std::size_t>(end);
  };
  std::vector<double> least(static_cast<std::size_t>(stages) * static_cast<std::size_t>(items + 1),
                            kNever);
  std::vector<int> from(least.size(), 0);
  // Between two cuts inside the model blocks are alike, and only how many there are tells a stage.
  const auto is_first_block = [&](const Item& item) {
    return item.kind == ItemKind::block && item.block == model.items[1].block;
  };
  const bool alike = std::ranges::all_of(
      model.items | std::views::drop(1) | std::views::take(std::max(0, items - 2)), is_first_block);
  std::map<std::array<int, 3>, double> known;
  RunSplit trial = split;
  const auto seconds = [&](int stage, int begin, int end) {
    const bool inner = alike && begin > 0 && end < items;
    const std::array<int, 3> key{stage, inner ? -1 : begin, inner ? end - begin : end};
    const auto [at, added] = known.try_emplace(key, 0);
    if (!added) return at->second;
    RunStage& s = trial.stages[static_cast<std::size_t>(stage)];
    s.begin = begin;
    s.end = end;
    // What does not fit is taken only if nothing does.
    const double penalty = repeat_to_fit(model, setup, trial, stage) ? 1 : 4;
    at->second = penalty * stage_seconds(model, trial, setup, stage);
    return at->second;
  };
  for (int stage = 0; stage < stages; ++stage) {
    for (int end = stage + 1; end <= items - (stages - 1 - stage); ++end) {
      for (int begin = stage; begin < end; ++begin) {
        if (stage == 0 && begin > 0) break;
        const double before = stage == 0 ? 0 : least[cell(stage - 1, begin)];
        if (before == kNever) continue;
        if (before >= least[cell(stage, end)]) continue;
        const double worst = std::max(before, seconds(stage, begin, end));
        if (worst >= least[cell(stage, end)]) continue;
        least[cell(stage, end)] = worst;
        from[cell(stage, end)] = begin;
      }
    }
  }
  int end = items;
  for (int stage = stages - 1; stage >= 0; --stage) {
    RunStage& s = split.stages[static_cast<std::size_t>(stage)];
    s.end = end;
    s.begin = end = from[cell(stage, end)];
  }
  repeat_to_fit(model, setup, split);
}

RunSplit search(const MeasuredRun& run, const ModelShape& model, const RunSetup& setup) {
  Best best;
  for (int pp = 1; pp <= run.gpus; pp *= 2) {
    if (pp > model.num_blocks()) break;
    for (int tp = 1; tp * pp <= run.gpus && tp <= setup.fabric.node_width; tp *= 2) {
      RunSplit split;
      read_words(run, setup, split);
      split.dp = run.gpus / (tp * pp);
      cut_evenly(split, model, pp, tp, 0);
      try_micro_batches(run, model, setup, split, true, best);
    }
  }
  if (!std::isfinite(best.seconds))
    fail(run, "no split of the devices gives every replica a sample", "give gpus and gbs");
  return best.split;
}

int global_batch(const MeasuredRun& run, int dp) {
  if (run.global_batch > 0) return run.global_batch;
  if (run.local_batch > 0) return run.local_batch * dp;
  return run.micro_batch * dp;
}

}  // namespace

RunSplit complete(const MeasuredRun& given, const ModelShape& model, const RunSetup& setup) {
  MeasuredRun run = given;
  fill_in_size(run);
  if (!run.stage_gpus.empty()) {
    RunSplit split;
    read_words(run, setup, split);
    split.micro_batch = std::max(1, run.micro_batch);
    split.micro_batches = std::max(1, run.global_batch / split.micro_batch);
    for (const int devices : run.stage_gpus) split.stages.push_back({.tp = devices});
    cut_for_speed(model, setup, split);
    return split;
  }
  if (run.tp == 0) {
    if (run.gpus == 0) run.gpus = 1;
    if (run.global_batch == 0) fail(run, "its batch is not said", "give gbs");
    return search(run, model, setup);
  }
  RunSplit split;
  read_words(run, setup, split);
  const int pp = std::max(1, run.pp);
  split.cp = std::max(1, run.cp);
  split.dp = run.dp > 0 ? run.dp : std::max(1, run.gpus / (run.tp * pp * split.cp));
  split.interleave = run.interleave;
  run.global_batch = global_batch(run, split.dp);
  if (run.global_batch < split.dp) fail(run, "a replica has no sample", "give gbs of at least dp");
  const double repeated = repeats_all(run) ? 1 : 0;
  if (!run.partition.empty()) {
    if (static_cast<int>(run.partition.size()) != pp + 1 ||
        run.partition.back() != static_cast<int>(model.items.size()))
      fail(run, "its partition does not cut the model's items into pp stages",
           "give pp + 1 ascending numbers that end with the number of items");
    for (int i = 0; i < pp; ++i)
      split.stages.push_back({.begin = run.partition[static_cast<std::size_t>(i)],
                              .end = run.partition[static_cast<std::size_t>(i) + 1],
                              .tp = run.tp,
                              .repeated = repeated});
  } else {
    cut_evenly(split, model, pp, run.tp, repeated);
  }
  Best best;
  try_micro_batches(run, model, setup, split, false, best);
  if (!std::isfinite(best.seconds))
    fail(run, "the micro-batch does not divide a replica's samples",
         "give mbs that divides gbs/dp");
  return best.split;
}

}  // namespace braid
