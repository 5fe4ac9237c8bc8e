#include "planner/validate/run.h"

#include <algorithm>

#include "planner/core/json.h"

namespace braid {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kGiB = 1 << 30;

// Sources write null for what they do not know.
std::optional<JsonValue> known(JsonObject& object, const std::string& key) {
  auto value = object.find(key);
  if (value && value->raw().is_null()) return std::nullopt;
  return value;
}

int integer_or_zero(JsonObject& object, const std::string& key) {
  const auto value = known(object, key);
  return value ? static_cast<int>(value->integer({0, 1 << 30})) : 0;
}

std::string string_or_empty(JsonObject& object, const std::string& key) {
  const auto value = known(object, key);
  return value ? value->string() : std::string();
}

std::vector<int> integers(JsonObject& object, const std::string& key) {
  std::vector<int> list;
  const auto value = known(object, key);
  if (!value) return list;
  for (const JsonValue& entry : value->array())
    list.push_back(static_cast<int>(entry.integer({0, 1 << 20})));
  return list;
}

std::optional<double> positive(JsonObject& object, const std::string& key, double unit = 1) {
  const auto value = known(object, key);
  if (!value) return std::nullopt;
  const double number = value->number(0);
  if (number <= 0) return std::nullopt;
  return number * unit;
}

void read_measured(JsonObject object, MeasuredRun& run) {
  run.seconds = positive(object, "iter_time_s");
  run.tokens = positive(object, "tokens_per_s_per_gpu");
  run.samples = positive(object, "samples_per_s_megatron");
  run.states = positive(object, "params_opt_gib", kGiB);
  run.activations = positive(object, "activations_gib", kGiB);
  run.activation_share = positive(object, "activation_pct_of_tp_baseline");
  run.peak = positive(object, "peak_mem_mb", kMiB);
  if (!run.peak) run.peak = positive(object, "peak_mem_gib", kGiB);
  if (const auto failed = known(object, "failed_or_oom")) run.failed = failed->boolean();
  if (const auto ranks = known(object, "per_rank_mem")) {
    for (const JsonValue& entry : ranks->array()) {
      JsonObject rank(entry);
      run.ranks.push_back({.stage = integer_or_zero(rank, "stage"),
                           .allocated = rank.number("max_allocated_mb") * kMiB,
                           .reserved = rank.number("max_reserved_mb") * kMiB});
    }
  }
  const auto allocated = known(object, "stage_alloc_mb");
  const auto reserved = known(object, "stage_reserved_mb");
  if (allocated && reserved) {
    const auto first = allocated->array(), second = reserved->array();
    for (std::size_t i = 0; i < first.size() && i < second.size(); ++i)
      run.ranks.push_back({.stage = static_cast<int>(i),
                           .allocated = first[i].number(0) * kMiB,
                           .reserved = second[i].number(0) * kMiB});
  }
  object.ignore_rest();
}

MeasuredRun read_run(const JsonValue& value) {
  JsonObject object(value);
  MeasuredRun run;
  run.id = integer_or_zero(object, "id");
  run.set = object.string("set");
  run.gpu = string_or_empty(object, "gpu");
  run.model = string_or_empty(object, "model");
  run.hidden = integer_or_zero(object, "hidden");
  run.layers = integer_or_zero(object, "layers");
  run.heads = integer_or_zero(object, "heads");
  run.seq = integer_or_zero(object, "seq");
  run.vocab = integer_or_zero(object, "vocab");
  run.gpus = integer_or_zero(object, "gpus");
  run.tp = integer_or_zero(object, "tp");
  run.pp = integer_or_zero(object, "pp");
  run.cp = integer_or_zero(object, "cp");
  run.dp = integer_or_zero(object, "dp");
  run.interleave = std::max(1, integer_or_zero(object, "interleave"));
  run.global_batch = integer_or_zero(object, "gbs");
  run.micro_batch = integer_or_zero(object, "mbs");
  run.local_batch = integer_or_zero(object, "local_batch");
  run.partition = integers(object, "partition");
  run.stage_gpus = integers(object, "stage_gpus");
  run.recompute = string_or_empty(object, "recompute");
  run.technique = string_or_empty(object, "technique");
  if (const auto flash = known(object, "flash_attn")) run.flash = flash->boolean();
  read_measured(object.object("measured"), run);
  if (const auto derived = known(object, "derived"); derived && !run.seconds) {
    JsonObject figures(*derived);
    run.seconds = positive(figures, "iter_time_s");
    figures.ignore_rest();
  }
  object.ignore_rest();
  return run;
}

}  // namespace

std::vector<MeasuredRun> read_runs(const std::filesystem::path& file) {
  const Json json = read_json(file);
  JsonObject root(JsonValue(json, file.string()));
  std::vector<MeasuredRun> runs;
  for (const JsonValue& row : root.array("rows")) runs.push_back(read_run(row));
  root.ignore_rest();
  if (runs.empty()) root.fail("there is no run in it", "give a file with at least one row");
  return runs;
}

}  // namespace braid
