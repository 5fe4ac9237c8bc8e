#include "tests/relations/random_question.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "planner/core/json.h"

namespace braid {

namespace {

constexpr double kGiga = 1e9;
constexpr double kGiB = 0x1p30;

// ---- model ----

LayerShape drawn_block(Dice& dice, std::int64_t tokens, std::int64_t heads, std::int64_t head_dim) {
  LayerShape block;
  block.kind = LayerKind::block;
  block.tokens = tokens;
  block.heads = heads;
  block.head_dim = head_dim;
  block.hidden = heads * head_dim;
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d <= heads; ++d)
    if (heads % d == 0) divisors.push_back(d);
  block.kv_heads = dice.chance(0.5) ? heads : dice.any(divisors);
  block.attention = AttentionKind::causal;
  block.activation = dice.chance(0.6) ? Activation::swiglu : Activation::gelu;
  block.ffn = dice.chance(0.8) ? block.hidden * dice.number(1, 5) : block.hidden * 43 / 16;
  if (dice.chance(0.5)) block.norm = NormKind::rms_norm;
  block.rotary = dice.chance(0.6);
  block.qkv_bias = block.attention_out_bias = block.ffn_bias = dice.chance(0.3);
  return block;
}

void add_experts(Dice& dice, LayerShape& block) {
  block.experts = dice.any<std::int64_t>({2, 3, 4, 6, 8});
  block.experts_per_token = dice.number(1, 2);
  if (dice.chance(0.3)) block.shared_ffn = block.ffn;
}

// Between an embedding and a head, `runs` of equal blocks.
struct Run {
  LayerShape block;
  int count = 0;
};

Model stacked(const std::vector<Run>& runs, const LayerShape& embedding, const LayerShape& head) {
  Model model;
  model.family = "braid";
  model.sequence = embedding.tokens;
  model.types.push_back({"embedding", embedding});
  model.layers.push_back(0);
  for (const Run& run : runs) {
    const auto same = [&](const LayerType& type) { return type.shape == run.block; };
    auto type = std::ranges::find_if(model.types, same);
    if (type == model.types.end()) {
      model.types.push_back({fmt::format("block{}", model.types.size()), run.block});
      type = model.types.end() - 1;
    }
    model.layers.insert(model.layers.end(), static_cast<std::size_t>(run.count),
                        static_cast<int>(type - model.types.begin()));
  }
  model.layers.push_back(static_cast<int>(model.types.size()));
  model.types.push_back({"head", head});
  return model;
}

// Llama's and GPT's kind, with experts or without, of one or two kinds of blocks.
Model decoder(Dice& dice) {
  const std::int64_t tokens =
      dice.any<std::int64_t>({64, 128, 197, 256, 300, 512, 1000, 1024, 2048, 4096, 8192});
  const std::int64_t head_dim = dice.any<std::int64_t>({32, 64, 128});
  const std::int64_t heads = dice.any<std::int64_t>({2, 3, 4, 6, 8, 12, 16, 32});
  LayerShape block = drawn_block(dice, tokens, heads, head_dim);
  const bool sparse = dice.chance(0.25);
  if (sparse) add_experts(dice, block);
  const int blocks = dice.number(2, 8);
  std::vector<Run> runs = {{block, blocks}};
  if (dice.chance(0.3)) {
    LayerShape other = block;
    if (sparse && dice.chance(0.5)) {
      other.experts = other.experts_per_token = other.shared_ffn = 0;
    } else {
      other.ffn = block.ffn * dice.number(2, 4);
    }
    const int narrow = dice.number(1, blocks - 1);
    runs = {{block, narrow}, {other, blocks - narrow}};
    if (dice.chance(0.3)) {  // in turns
      runs.clear();
      for (int i = 0; i < blocks; ++i) runs.push_back({i % 2 == 0 ? block : other, 1});
    }
  }
  LayerShape embedding;
  embedding.kind = LayerKind::embedding;
  embedding.tokens = tokens;
  embedding.hidden = block.hidden;
  embedding.vocab = dice.any<std::int64_t>({61, 1000, 8000, 32000, 50257});
  if (!block.rotary) embedding.positions = tokens;
  LayerShape head;
  head.kind = LayerKind::head;
  head.tokens = tokens;
  head.hidden = block.hidden;
  head.vocab = embedding.vocab;
  head.norm = block.norm;
  head.final_norm = true;
  head.tied = dice.chance(0.4);
  return stacked(runs, embedding, head);
}

// ViT's kind: 197 tokens of an image, one prediction a sample. Or BERT's.
Model encoder(Dice& dice) {
  const bool image = dice.chance(0.6);
  const std::int64_t tokens =
      image ? dice.any<std::int64_t>({50, 197, 256}) : dice.any<std::int64_t>({128, 384, 512});
  LayerShape block = drawn_block(dice, tokens, dice.any<std::int64_t>({4, 6, 12, 16}), 64);
  block.attention = AttentionKind::bidirectional;
  block.activation = Activation::gelu;
  block.rotary = false;
  block.post_norm = !image;
  LayerShape embedding;
  embedding.kind = LayerKind::embedding;
  embedding.tokens = tokens;
  embedding.hidden = block.hidden;
  embedding.positions = tokens;
  LayerShape head;
  head.kind = LayerKind::head;
  head.tokens = tokens;
  head.hidden = block.hidden;
  if (image) {
    embedding.patch_inputs = 768;
    embedding.class_token = head.class_token = tokens % 2 == 1;
    head.pooled = true;
    head.vocab = 1000;
  } else {
    embedding.vocab = head.vocab = 30522;
    embedding.token_types = 2;
    embedding.embedding_norm = true;
    head.head_dense = block.hidden;
    head.head_bias = true;
    head.tied = true;
  }
  return stacked({{block, dice.number(2, 6)}}, embedding, head);
}

// T5 and Swin, whose layers hand on more than one tensor, or shrink on the way.
Model encoder_decoder(Dice& dice) {
  const int heads = dice.any<int>({4, 8, 12});
  const std::int64_t sequence = dice.any<std::int64_t>({64, 256, 512});
  const Json json = {{"model_type", "t5"},
                     {"d_model", heads * 64},
                     {"d_kv", 64},
                     {"d_ff", heads * 64 * dice.number(2, 4)},
                     {"num_heads", heads},
                     {"num_layers", dice.number(1, 3)},
                     {"num_decoder_layers", dice.number(1, 3)},
                     {"vocab_size", 32128},
                     {"relative_attention_num_buckets", 32},
                     {"relative_attention_max_distance", 128},
                     {"braid_sequence", sequence},
                     {"braid_decoder_sequence", dice.any<std::int64_t>({sequence, sequence / 2})}};
  return model_from_json(json, "t5");
}
Model pyramid(Dice& dice) {
  const Json json = {{"model_type", "swin"},
                     {"embed_dim", dice.any<int>({96, 128})},
                     {"num_labels", 1000},
                     {"image_size", 224},
                     {"patch_size", 4},
                     {"window_size", 7},
                     {"mlp_ratio", 4},
                     {"depths", {dice.number(1, 2), dice.number(1, 2), dice.number(1, 3), 1}},
                     {"num_heads", {4, 8, 16, 32}}};
  return model_from_json(json, "swin");
}

Model drawn_model(Dice& dice) {
  const double kind = dice.real(0, 1);
  Model model = kind < 0.70   ? decoder(dice)
                : kind < 0.86 ? encoder(dice)
                : kind < 0.94 ? encoder_decoder(dice)
                              : pyramid(dice);
  model.name = "random";
  verify(model, "a random question's model");
  return model;
}

// ---- cluster ----

Link drawn_link(Dice& dice, double least, double most) {
  const double latency = dice.chance(0.2) ? 0 : dice.log_real(0.5e-6, 20e-6);
  return {BytesPerSecond(dice.log_real(least, most) * kGiga), Seconds(latency)};
}

DeviceType drawn_device(Dice& dice, const std::string& name) {
  const double teraflops = dice.log_real(50, 1000);
  return {.name = name,
          .peak_bf16 = FlopsPerSecond(teraflops * 1e12),
          .peak_fp32 = FlopsPerSecond(teraflops * 1e11),
          .memory = Bytes(static_cast<std::int64_t>(dice.any<int>({16, 24, 40, 80}) * kGiB)),
          .memory_bandwidth = BytesPerSecond(teraflops * dice.log_real(3, 10) * kGiga)};
}

std::vector<NodeGroup> drawn_nodes(Dice& dice, int device_types) {
  const bool equal_links = dice.chance(0.5), equal_sizes = dice.chance(0.6);
  const int entries = dice.any<int>({1, 1, 1, 2, 2, 3, 4});
  std::vector<NodeGroup> nodes;
  for (int i = 0; i < entries; ++i) {
    NodeGroup group{.count = dice.any<int>({1, 1, 2, 3}),
                    .device_type = dice.number(0, device_types - 1),
                    .devices = dice.any<int>({1, 2, 2, 3, 4, 4, 4, 5, 6, 8, 8}),
                    .inside = drawn_link(dice, 4, 600)};
    if (i > 0 && equal_links) group.inside = nodes.front().inside;
    if (i > 0 && equal_sizes) group.devices = nodes.front().devices;
    nodes.push_back(group);
  }
  return nodes;
}

// All described device types are in use.
bool uses_all(const Cluster& cluster) {
  for (std::size_t type = 0; type < cluster.device_types.size(); ++type)
    if (std::ranges::find(cluster.groups, static_cast<int>(type), &NodeGroup::device_type) ==
        cluster.groups.end())
      return false;
  return true;
}

Cluster drawn_cluster(Dice& dice) {
  const int most = dice.chance(0.06) ? 32 : dice.chance(0.3) ? 16 : 12;
  const int device_types = dice.chance(0.3) ? 2 : 1;
  Cluster cluster;
  cluster.name = "random";
  for (int i = 0; i < device_types; ++i)
    cluster.device_types.push_back(drawn_device(dice, i == 0 ? "A" : "B"));
  do {
    cluster.groups = drawn_nodes(dice, device_types);
  } while (cluster.num_devices() > most || cluster.num_devices() < 2 || !uses_all(cluster));
  cluster.between = drawn_link(dice, 0.1, 400);
  return cluster;
}

// ---- memory ----

// About what a device needs when states are spread over all devices: the runtime's context and
// communicators, and 18 bytes of a parameter.
double even_share(const Question& question) {
  constexpr double kContext = 2.0 * kGiB, kStates = 18;
  return kContext +
         kStates * static_cast<double>(parameters(question.model)) / question.cluster.num_devices();
}

void draw_memory(Dice& dice, Question& question) {
  if (dice.chance(0.5)) return;
  const Bytes little(static_cast<std::int64_t>(even_share(question) * dice.real(0.85, 1.6)));
  if (dice.chance(0.5)) {
    question.memory_limit = little;
  } else {
    question.cluster.device_types.front().memory = little;
  }
}

// ---- space ----

SpaceOptions drawn_space(Dice& dice) {
  SpaceOptions space;
  if (dice.chance(0.6)) return space;
  if (dice.chance(0.2)) space.max_tp = dice.any<int>({1, 2, 4});
  if (dice.chance(0.2)) space.max_cp = dice.any<int>({1, 2});
  if (dice.chance(0.2)) space.max_pp = dice.any<int>({1, 2, 4});
  if (dice.chance(0.2)) space.recompute = false;
  if (dice.chance(0.3)) space.primepar = false;
  if (dice.chance(0.1)) space.even_cuts = true;
  if (dice.chance(0.2))
    space.schedules = {
        dice.any<ScheduleKind>({ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                ScheduleKind::interleaved, ScheduleKind::zero_bubble})};
  if (dice.chance(0.1))
    space.mesh_orders = {dice.any<MeshOrder>(
        std::vector<MeshOrder>(std::begin(kMeshOrders), std::end(kMeshOrders)))};
  if (dice.chance(0.1)) space.rules_off = {Rule::unmeasured_squares};
  if (dice.chance(0.1)) space.rules_off.push_back(Rule::covered_layout);
  return space;
}

std::string flags_of(const SpaceOptions& space) {
  std::string flags;
  if (space.max_tp > 0) flags += fmt::format(" --max-tp {}", space.max_tp);
  if (space.max_cp > 0) flags += fmt::format(" --max-cp {}", space.max_cp);
  if (space.max_pp > 0) flags += fmt::format(" --max-pp {}", space.max_pp);
  if (!space.recompute) flags += " --no-recompute";
  if (!space.primepar) flags += " --no-primepar";
  if (space.even_cuts) flags += " (even cuts)";
  for (const ScheduleKind kind : space.schedules)
    flags += fmt::format(" --schedule {}", name_of(kind));
  for (const MeshOrder order : space.mesh_orders)
    flags += fmt::format(" (mesh {})", name_of(order));
  for (const Rule rule : space.rules_off) flags += fmt::format(" --no-rule {}", info(rule).name);
  return flags;
}

}  // namespace

double Dice::log_real(double low, double high) {
  return low * std::exp(real(0, std::log(high / low)));
}

Question random_question(std::uint64_t seed) {
  Dice dice(seed);
  Question question;
  question.seed = seed;
  question.model = drawn_model(dice);
  question.cluster = drawn_cluster(dice);
  question.global_batch =
      dice.any<std::int64_t>({1, 2, 3, 4, 5, 6, 7, 8, 8, 12, 16, 16, 24, 30, 32, 32});
  draw_memory(dice, question);
  question.space = drawn_space(dice);
  return question;
}

std::string describe(const Question& question) {
  return fmt::format(
      "question {}\nmodel.json: {}\ncluster.json: {}\nbraid plan --model model.json --cluster "
      "cluster.json --global-batch {}{}{}",
      question.seed, to_json(question.model).dump(), to_json(question.cluster).dump(),
      question.global_batch,
      question.memory_limit == Bytes()
          ? ""
          : fmt::format(" --memory {}B", question.memory_limit.value()),
      flags_of(question.space));
}

SearchOptions options_of(const Question& question) {
  SearchOptions options;
  options.memory_limit = question.memory_limit;
  options.global_batch = question.global_batch;
  options.space = question.space;
  return options;
}

}  // namespace braid
