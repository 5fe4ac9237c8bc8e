#include "planner/validate/shape.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "planner/core/error.h"

namespace braid {
namespace {

constexpr double kGpt2Vocabulary = 50257;

// Models that sources call by name alone.
struct NamedModel {
  std::string_view set, name;
  int hidden, layers, heads, kv_heads, ffn, seq, vocabulary;
  bool gated;
};
// Sources: Llama 3's model card; Korthikanti et al. (2022), table 3; the GPT sizes of Aceso
// (EuroSys '24, table 3, sequences of 2,048) and of Mist's benchmark (GPT-3's table 2.1, Llama with
// the same widths). The layer-scaling runs of Aceso name no width: 1,024 is the one whose
// arithmetic eight V100 can do at the published rates.
constexpr std::array kNamed = {
    NamedModel{"torchtitan", "8B", 4096, 32, 32, 8, 14336, 8192, 128256, true},
    NamedModel{"torchtitan", "70B", 8192, 80, 64, 8, 28672, 8192, 128256, true},
    NamedModel{"torchtitan", "405B", 16384, 126, 128, 8, 53248, 8192, 128256, true},
    NamedModel{"korthikanti_fig7_mem_pct", "22B", 6144, 48, 64, 64, 24576, 2048, 51200, false},
    NamedModel{"korthikanti_fig7_mem_pct", "175B", 12288, 96, 96, 96, 49152, 2048, 51200, false},
    NamedModel{"korthikanti_fig7_mem_pct", "530B", 20480, 105, 128, 128, 81920, 2048, 51200, false},
    NamedModel{"korthikanti_fig7_mem_pct", "1T", 25600, 128, 160, 160, 102400, 2048, 51200, false},
    NamedModel{"aceso_eurosys24", "gpt-350M", 1024, 24, 16, 16, 4096, 2048, 51200, false},
    NamedModel{"aceso_eurosys24", "gpt-1.3B", 2048, 24, 32, 32, 8192, 2048, 51200, false},
    NamedModel{"aceso_eurosys24", "gpt-2.6B", 2560, 32, 32, 32, 10240, 2048, 51200, false},
    NamedModel{"aceso_eurosys24", "gpt-6.7B", 4096, 32, 32, 32, 16384, 2048, 51200, false},
    NamedModel{"aceso_eurosys24", "gpt-13B", 5120, 40, 40, 40, 20480, 2048, 51200, false},
    NamedModel{"aceso_scale_layers", "", 1024, 0, 16, 16, 4096, 1024, 51200, false},
    NamedModel{"mist_l4", "gpt-1.3b", 2048, 24, 16, 16, 8192, 2048, 50304, false},
    NamedModel{"mist_l4", "gpt-2.7b", 2560, 32, 32, 32, 10240, 2048, 50304, false},
    NamedModel{"mist_l4", "gpt-7b", 4096, 32, 32, 32, 16384, 2048, 50304, false},
    NamedModel{"mist_l4", "llama-1.3b", 2048, 24, 16, 16, 5504, 2048, 50304, true},
    NamedModel{"mist_l4", "llama-2.7b", 2560, 32, 32, 32, 6912, 2048, 50304, true},
    NamedModel{"mist_l4", "llama-7b", 4096, 32, 32, 32, 11008, 2048, 50304, true},
};

const NamedModel* find_named(const MeasuredRun& run) {
  std::string_view set = run.set;
  if (set == "aceso_eurosys24_mem") set = "aceso_eurosys24";
  const auto same = [&](const NamedModel& model) { return model.name == run.model; };
  for (const NamedModel& model : kNamed)
    if (model.set == set && same(model)) return &model;
  // A set that is not known may mean the same models by the same names.
  const bool says_shape = run.hidden > 0 && run.layers > 0;
  if (says_shape || run.model.empty()) return nullptr;
  const auto found = std::ranges::find_if(kNamed, same);
  return found == kNamed.end() ? nullptr : &*found;
}

// Aceso, table 3: every GPT size on its own number of V100, batches of 1,024.
struct NamedSize {
  std::string_view name;
  int gpus;
};
constexpr int kAcesoBatch = 1024;
constexpr std::array kAcesoSizes = {NamedSize{"gpt-350M", 1}, NamedSize{"gpt-1.3B", 4},
                                    NamedSize{"gpt-2.6B", 8}, NamedSize{"gpt-6.7B", 16},
                                    NamedSize{"gpt-13B", 32}};

// A pipeline may cut the blocks into `pieces`.
ModelShape decoder(Block block, int layers, double vocabulary, int pieces = 1) {
  block.share = 1.0 / pieces;
  ModelShape shape{.vocabulary = vocabulary, .hidden = block.hidden, .seq = block.seq};
  shape.items.push_back({.kind = ItemKind::embedding});
  for (int i = 0; i < layers * pieces; ++i) shape.items.push_back({ItemKind::block, block});
  shape.items.push_back({.kind = ItemKind::head});
  return shape;
}

// AMP cuts a list in which items without work stand around the layers: after the embedding, and
// three about the head.
ModelShape amp_gpt2(const MeasuredRun& run) {
  const double h = run.hidden;
  ModelShape shape{.vocabulary = 52256, .hidden = h, .seq = static_cast<double>(run.seq)};
  const Block block{.hidden = h, .ffn = 4 * h, .heads = 16, .kv_heads = 16, .seq = shape.seq};
  shape.items = {{.kind = ItemKind::embedding}, {}};
  for (int i = 0; i < run.layers; ++i) shape.items.push_back({ItemKind::block, block});
  shape.items.insert(shape.items.end(), {{}, {}, {.kind = ItemKind::head}, {}});
  return shape;
}

// TransGAN's generator with depths 12,0,0,0,0,12 and a bottom of 9 × 9: a layer that makes 81
// tokens of 512 random numbers, whole on every tensor rank; twelve blocks of full width on these;
// and after five doublings of the picture, which take the width down by 64, twelve blocks on 256
// windows of 18 × 18. Between them stand reshapes. Every tensor rank has all four heads, of a part
// of the width; `score_traffic` is that of all four.
ModelShape amp_transgan(const MeasuredRun& run) {
  constexpr std::size_t kItems = 56, kWide = 3, kNarrow = 41, kDepth = 12;
  const double h = run.hidden;
  ModelShape shape{
      .vocabulary = 512 * 81, .hidden = h, .seq = 81, .tied = false, .splits_tables = false};
  shape.items.resize(kItems);
  shape.items.front().kind = ItemKind::embedding;
  const Block wide{.hidden = h, .ffn = 4 * h, .heads = 1, .kv_heads = 1, .seq = 81};
  const Block narrow{
      .hidden = h / 64, .ffn = h / 16, .heads = 1, .kv_heads = 1, .seq = 324, .windows = 256};
  for (std::size_t i = 0; i < kDepth; ++i) {
    shape.items[kWide + i] = {ItemKind::block, wide};
    shape.items[kNarrow + i] = {ItemKind::block, narrow};
  }
  return shape;
}

}  // namespace

void fill_in_size(MeasuredRun& run) {
  if (!run.set.starts_with("aceso_eurosys24")) return;
  const auto found = std::ranges::find(kAcesoSizes, run.model, &NamedSize::name);
  if (found == kAcesoSizes.end()) return;
  if (run.gpus == 0) run.gpus = found->gpus;
  if (run.global_batch == 0) run.global_batch = kAcesoBatch;
}

double Block::parameters() const {
  const double attention = hidden * hidden * (2 + 2 * kv_heads / heads);
  return share * (attention + (gated ? 3 : 2) * hidden * ffn);
}

double ModelShape::parameters() const {
  double sum = (tied ? 1 : 2) * vocabulary * hidden;
  for (const Item& item : items)
    if (item.kind == ItemKind::block) sum += item.block.parameters();
  return sum;
}

int ModelShape::num_blocks() const {
  return static_cast<int>(std::ranges::count(items, ItemKind::block, &Item::kind));
}

ModelShape shape_of(const MeasuredRun& run) {
  if (run.set == "amp_het_model") return amp_transgan(run);
  if (run.set.starts_with("amp_")) return amp_gpt2(run);
  if (const NamedModel* named = find_named(run)) {
    const Block block{.hidden = static_cast<double>(named->hidden),
                      .ffn = static_cast<double>(named->ffn),
                      .heads = static_cast<double>(named->heads),
                      .kv_heads = static_cast<double>(named->kv_heads),
                      .seq = static_cast<double>(run.seq > 0 ? run.seq : named->seq),
                      .gated = named->gated};
    ModelShape shape =
        decoder(block, named->layers > 0 ? named->layers : run.layers, named->vocabulary);
    shape.tied = !named->gated;
    return shape;
  }
  if (run.hidden == 0 || run.layers == 0 || run.seq == 0)
    throw Error({.what = fmt::format("it says neither its model's shape nor a name that is known"
                                     "{}",
                                     run.model.empty() ? "" : " ('" + run.model + "')"),
                 .where = fmt::format("row {} of '{}'", run.id, run.set),
                 .fix = "give hidden, layers and seq"});
  const double h = run.hidden;
  constexpr double kUsualHead = 128;
  const double heads = run.heads > 0 ? run.heads : std::max(1.0, std::floor(h / kUsualHead));
  const Block block{.hidden = h,
                    .ffn = 4 * h,
                    .heads = heads,
                    .kv_heads = heads,
                    .seq = static_cast<double>(run.seq)};
  // Aceso, whose plans have stages of different sizes, cuts between operators: a block's attention
  // and its feed-forward layer are about as long.
  const int pieces = run.stage_gpus.empty() ? 1 : 2;
  return decoder(block, run.layers, run.vocab > 0 ? run.vocab : kGpt2Vocabulary, pieces);
}

}  // namespace braid
