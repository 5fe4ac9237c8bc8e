#include "tests/support/random_plan.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/plan/legal.h"

namespace braid {

namespace {

// Every kind and degree of tensor parallelism, and nothing else.
std::vector<Strategy> tensor_strategies(int width) {
  std::vector<Strategy> all;
  for (int tp = 1; tp <= width; tp *= 2) {
    all.push_back({.tp = tp});
    if (tp > 1) all.push_back({.tp = tp, .tp_kind = TensorKind::ulysses});
    for (const int side : {2, 4})
      for (const SquareVariant variant : {SquareVariant::plus_minus, SquareVariant::paper})
        if (tp % (side * side) == 0)
          all.push_back({.tp = tp,
                         .tp_kind = TensorKind::spatial_temporal,
                         .square = side,
                         .variant = variant});
  }
  return all;
}

std::vector<Strategy> strategies(const LayerShape& shape, int width, std::int64_t micro_batch) {
  std::vector<Strategy> legal;
  for (const Strategy& tensor : tensor_strategies(width))
    for (int cp = 1; tensor.tp * cp <= width; cp *= 2)
      for (int zero = 0; zero < 4; ++zero)
        for (int ep = 1; ep <= 8; ++ep)
          for (const Recompute recompute :
               {Recompute::none, Recompute::selective, Recompute::full}) {
            if (width % (tensor.tp * cp) != 0) continue;
            Strategy s = tensor;
            s.cp = cp;
            s.dp = width / tensor.tp / cp;
            s.zero = static_cast<Zero>(zero);
            s.ep = ep;
            s.recompute = recompute;
            if (!strategy_fault(shape, s, micro_batch)) legal.push_back(s);
          }
  return legal;
}

}  // namespace

Model tiny_model(const std::string& name, int blocks, std::int64_t sequence) {
  if (name == "gpt2") {
    const Json json = {
        {"model_type", "gpt2"}, {"n_embd", 32},  {"n_head", 8},       {"n_layer", blocks},
        {"vocab_size", 61},     {"n_inner", 64}, {"n_positions", 64}, {"braid_sequence", sequence}};
    return model_from_json(json, name);
  }
  if (name == "vit") {  // ten tokens, whatever the sequence: two ranks at most share a sample
    const Json json = {
        {"model_type", "vit"},      {"hidden_size", 32},       {"num_labels", 5},
        {"image_size", 12},         {"patch_size", 4},         {"qkv_bias", true},
        {"num_attention_heads", 8}, {"intermediate_size", 48}, {"num_hidden_layers", blocks}};
    return model_from_json(json, name);
  }
  // Three stages of 64, 16 and 4 tokens, whatever the sequence, in windows of four: eight ranks cut
  // pairs of rows.
  if (name == "swin") {
    const Json json = {
        {"model_type", "swin"}, {"embed_dim", 16},          {"num_labels", 5},
        {"image_size", 16},     {"patch_size", 2},          {"window_size", 2},
        {"mlp_ratio", 1.5},     {"depths", {blocks, 2, 1}}, {"num_heads", {8, 8, 8}}};
    return model_from_json(json, name);
  }
  if (name.starts_with("t5")) {
    Json json = {{"model_type", "t5"},
                 {"d_model", 32},
                 {"d_kv", 4},
                 {"d_ff", 48},
                 {"num_heads", 8},
                 {"num_layers", blocks},
                 {"num_decoder_layers", blocks - 1},
                 {"vocab_size", 61},
                 {"relative_attention_num_buckets", 8},
                 {"relative_attention_max_distance", 10},
                 {"braid_sequence", sequence}};
    if (name == "t5_v1_1") {
      json["feed_forward_proj"] = "gated-gelu";
      json["tie_word_embeddings"] = false;
      json["braid_decoder_sequence"] = sequence / 2;
    }
    return model_from_json(json, name);
  }
  if (name == "bloom") {
    const Json json = {{"model_type", "bloom"}, {"hidden_size", 32}, {"n_head", 8},
                       {"n_layer", blocks},     {"vocab_size", 61},  {"braid_sequence", sequence}};
    return model_from_json(json, name);
  }
  Json json = {{"hidden_size", 32}, {"num_attention_heads", 8},      {"num_key_value_heads", 4},
               {"head_dim", 4},     {"num_hidden_layers", blocks},   {"intermediate_size", 48},
               {"vocab_size", 61},  {"max_position_embeddings", 64}, {"braid_sequence", sequence}};
  json["model_type"] = name == "llama_tied" ? "llama" : name;
  if (name == "llama_tied") {
    json["tie_word_embeddings"] = true;
    json["num_key_value_heads"] = 2;
  }
  if (name == "phi3") json["pad_token_id"] = nullptr;
  if (name == "mistral") json["sliding_window"] = 5;
  if (name == "opt") json["ffn_dim"] = 48;
  if (name == "mixtral") {
    json["num_local_experts"] = 4;
    json["num_experts_per_tok"] = 2;
    json["intermediate_size"] = 16;
  }
  return model_from_json(json, name);
}

Cluster tiny_cluster(int devices) {
  Cluster cluster;
  cluster.name = "test";
  cluster.device_types = {{.name = "device",
                           .peak_bf16 = FlopsPerSecond(1e14),
                           .peak_fp32 = FlopsPerSecond(1e13),
                           .memory = Bytes(std::int64_t{64} << 30),
                           .memory_bandwidth = BytesPerSecond(1e12)}};
  const Link link{.bandwidth = BytesPerSecond(1e11), .latency = Seconds(1e-5)};
  cluster.groups = {{.count = 1, .device_type = 0, .devices = devices, .inside = link}};
  cluster.between = link;
  return cluster;
}

Plan reference_plan(const Model& model, std::int64_t global_batch) {
  Plan plan;
  plan.model = model;
  plan.cluster = tiny_cluster(1);
  plan.global_batch = global_batch;
  plan.precision = Precision::fp32;
  plan.stages = {
      {.chunks = {{0, model.num_layers()}},
       .strategies = std::vector<Strategy>(static_cast<std::size_t>(model.num_layers()))}};
  return plan;
}

Plan plan_of_sixteen(const std::string& model, std::int64_t batch, SquareVariant variant,
                     Recompute recompute) {
  Plan plan = reference_plan(tiny_model(model, 2, 32), batch);
  plan.cluster = tiny_cluster(16);
  std::vector<Strategy>& strategies = plan.stages[0].strategies;
  strategies.assign(strategies.size(), {.tp = 16,
                                        .tp_kind = TensorKind::spatial_temporal,
                                        .recompute = recompute,
                                        .square = 4,
                                        .variant = variant});
  strategies.front() = strategies.back() = {.tp = 16};
  plan.prediction.stages.resize(1);
  verify(plan, "a square of sixteen");
  return plan;
}

std::vector<std::string> squares_in(const Plan& plan) {
  std::vector<std::string> words;
  for (const StagePlan& stage : plan.stages)
    for (const Strategy& s : stage.strategies)
      if (s.square > 1)
        words.push_back(name_of(s.variant) +
                        (rows_share_samples(s, plan.micro_batch()) ? " of samples" : " of tokens") +
                        (s.outer() > 1 ? ", several" : ""));
  return words;
}

Plan PlanDice::drawn_plan(const std::optional<Task>& task) {
  while (true) {
    Plan drawn = candidate(task);
    try {
      verify(drawn, "drawn");
      return drawn;
    } catch (const Error&) {  // a cut without a block, a batch that nothing divides: again
    }
  }
}

Plan PlanDice::candidate(const std::optional<Task>& task) {
  Plan plan;
  plan.precision = Precision::fp32;
  // Squares need four devices, or eight for two of them.
  const int devices = chance(0.3) ? 4 * number(1, 2) : std::max(number(1, 8), number(1, 8));
  plan.model =
      task ? task->model : tiny_model(any(kTinyModels), number(2, 5), any<std::int64_t>({16, 32}));
  plan.cluster = tiny_cluster(devices);
  std::vector<int> stage_counts;
  for (int s = 1; s <= devices; ++s)
    if (devices % s == 0 && s <= 4) stage_counts.push_back(s);
  plan.shape.stages = any(stage_counts);
  plan.shape.schedule = any<ScheduleKind>({ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                           ScheduleKind::interleaved, ScheduleKind::zero_bubble});
  const bool interleaved = plan.shape.schedule == ScheduleKind::interleaved;
  plan.shape.chunks = interleaved ? number(1, 2) : 1;
  plan.shape.micro_batches =
      plan.shape.chunks > 1 ? plan.shape.stages * number(1, 2) : number(1, 4);
  plan.mesh_order = kMeshOrders[number(0, 2)];
  const int width = devices / plan.shape.stages;
  plan.global_batch =
      task ? task->global_batch
           : plan.shape.micro_batches * any<std::int64_t>({1, 2, width, std::int64_t{2} * width});
  cut(plan);
  choose(plan);
  plan.prediction.stages.resize(plan.stages.size());  // a plan file has one for each
  return plan;
}

void PlanDice::cut(Plan& plan) {
  const int parts = plan.shape.stages * plan.shape.chunks;
  const int layers = plan.model.num_layers();
  std::vector<int> ends;
  ends.reserve(static_cast<std::size_t>(parts));
  for (int i = 0; i < parts - 1; ++i) ends.push_back(number(1, layers - 1));
  std::ranges::sort(ends);
  ends.push_back(layers);
  plan.stages.assign(static_cast<std::size_t>(plan.shape.stages), {});
  int begin = 0;
  for (int v = 0; v < parts; ++v) {
    const int end = ends[static_cast<std::size_t>(v)];
    plan.stages[static_cast<std::size_t>(v % plan.shape.stages)].chunks.push_back({begin, end});
    begin = end;
  }
}

void PlanDice::choose(Plan& plan) {
  const int width = plan.mesh().stage_devices();
  const double changes = any<double>({0.0, 0.3, 1.0});
  for (StagePlan& stage : plan.stages) {
    for (const int layer : layers_of(stage)) {
      const LayerShape& shape = plan.model.type_of(layer).shape;
      const bool keeps = !stage.strategies.empty() && !chance(changes) &&
                         !strategy_fault(shape, stage.strategies.back(), plan.micro_batch());
      if (keeps) {
        stage.strategies.push_back(stage.strategies.back());
        continue;
      }
      const std::vector<Strategy> legal = strategies(shape, width, plan.micro_batch());
      stage.strategies.push_back(legal.empty() ? Strategy{} : of_any_kind(legal));
    }
  }
}

Strategy PlanDice::of_any_kind(const std::vector<Strategy>& legal) {
  const TensorKind kind =
      any<TensorKind>({TensorKind::megatron, TensorKind::ulysses, TensorKind::spatial_temporal});
  std::map<int, std::vector<Strategy>> by_degree;
  for (const Strategy& s : legal)
    if (s.tp_kind == kind) by_degree[s.tp].push_back(s);
  if (by_degree.empty()) return any(legal);
  const int drawn = number(0, static_cast<int>(by_degree.size()) - 1);
  return any(std::next(by_degree.begin(), drawn)->second);
}

}  // namespace braid
