#include <algorithm>

#include "planner/validate/split.h"

namespace braid {
namespace {

// fp16 weight, fp32 gradient, fp32 master weight and Adam's two moments, as Megatron-LM keeps them.
constexpr double kStateBytes = 18;

// Korthikanti et al. (2022), table 2: bytes that a block keeps for backward, in units of
// sequence × batch × hidden.
double kept(const Block& b, const RunSplit& split, int tp) {
  const double t = tp;
  const double scores = split.flash ? 0 : 5 * b.heads * b.seq / (b.hidden * t);
  const double replicated = split.sequence_parallel ? 10 / t : 10;
  return replicated + 24 * (b.ffn * (b.gated ? 1.5 : 1.0) / (4 * b.hidden)) / t +
         (split.selective ? 0 : scores);
}

}  // namespace

RunMemory memory_of(const ModelShape& model, const RunSplit& split, int stage) {
  const RunStage& s = split.stages[static_cast<std::size_t>(stage)];
  const int stages = static_cast<int>(split.stages.size());
  RunMemory memory;
  double parameters = 0, activations = 0;
  double largest = 0;
  for (int i = s.begin; i < s.end; ++i) {
    const Item& item = model.items[static_cast<std::size_t>(i)];
    const double unit = static_cast<double>(split.micro_batch) / split.cp;
    if (item.kind == ItemKind::head) {
      parameters += stages > 1 || !model.tied ? model.vocabulary * model.hidden : 0;
      largest = std::max(largest, unit * model.seq * model.vocabulary / s.tp * 6);
    }
    if (item.kind == ItemKind::embedding)
      parameters += (model.splits_tables ? 1 : s.tp) * model.vocabulary * model.hidden;
    if (item.kind != ItemKind::block) continue;
    const Block& b = item.block;
    parameters += b.parameters();
    const double sbh = b.share * unit * b.windows * b.seq * b.hidden;
    const double all = sbh * kept(b, split, s.tp);
    const double input = 2 * sbh / (split.sequence_parallel ? s.tp : 1);
    activations += s.repeated * input + (1 - s.repeated) * all;
    if (s.repeated > 0) largest = std::max(largest, all / b.share);
  }
  const double shards = split.sharded ? split.dp * split.cp : 1;
  memory.states = parameters / s.tp * kStateBytes / shards;
  // One-forward-one-backward holds as many micro-batches as stages follow, itself included;
  // interleaving holds more.
  double in_flight = std::min(split.micro_batches, stages - stage);
  if (split.interleave > 1)
    in_flight *= 1 + (stages - 1.0) / (static_cast<double>(stages) * split.interleave);
  memory.activations = activations * in_flight;
  memory.workspace = largest;
  return memory;
}

}  // namespace braid
