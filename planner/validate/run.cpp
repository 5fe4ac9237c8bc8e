#include "planner/validate/run.h"

#include <fmt/core.h>

#include <algorithm>

#include "planner/core/json.h"

namespace braid {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kGiB = 1 << 30;
// Errors of what was kept free are relative to it.
constexpr RealLimit kReserved{"reserved memory", 1e-9, 1e18, "MiB"};

// Sources write null for what they do not know.
std::optional<JsonValue> known(JsonObject& object, const std::string& key) {
  auto value = object.find(key);
  if (value && value->raw().is_null()) return std::nullopt;
  return value;
}

int integer_or_zero(JsonObject& object, const std::string& key, IntRange range) {
  const auto value = known(object, key);
  return value ? static_cast<int>(value->integer(range)) : 0;
}

std::string string_or_empty(JsonObject& object, const std::string& key) {
  const auto value = known(object, key);
  return value ? value->string() : std::string();
}

// A number or a name.
std::string id_of(JsonObject& object) {
  const auto value = known(object, "id");
  if (!value) return {};
  return value->raw().is_string() ? value->string()
                                  : std::to_string(value->integer(limits::kCount.or_zero()));
}

std::vector<int> integers(JsonObject& object, const std::string& key, IntRange range) {
  std::vector<int> list;
  const auto value = known(object, key);
  if (!value) return list;
  for (const JsonValue& entry : value->array())
    list.push_back(static_cast<int>(entry.integer(range)));
  return list;
}

std::optional<double> positive(JsonObject& object, const std::string& key, double unit = 1) {
  const auto value = known(object, key);
  if (!value) return std::nullopt;
  const double number = value->number(0, limits::kFigure.high);
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
      run.ranks.push_back(
          {.stage = integer_or_zero(rank, "stage", limits::kDegree.or_zero()),
           .allocated = rank.number("max_allocated_mb", limits::kMeasuredBytes) * kMiB,
           .reserved = rank.number("max_reserved_mb", kReserved) * kMiB});
    }
  }
  const auto allocated = known(object, "stage_alloc_mb");
  const auto reserved = known(object, "stage_reserved_mb");
  if (allocated && reserved) {
    const auto first = allocated->array(), second = reserved->array();
    for (std::size_t i = 0; i < first.size() && i < second.size(); ++i)
      run.ranks.push_back({.stage = static_cast<int>(i),
                           .allocated = first[i].number(limits::kMeasuredBytes) * kMiB,
                           .reserved = second[i].number(kReserved) * kMiB});
  }
  object.ignore_rest();
}

MeasuredRun read_run(const JsonValue& value) {
  JsonObject object(value);
  MeasuredRun run;
  run.id = id_of(object);
  run.set = object.string("set");
  run.gpu = string_or_empty(object, "gpu");
  run.model = string_or_empty(object, "model");
  run.hidden = integer_or_zero(object, "hidden", limits::kWidth.or_zero());
  run.layers = integer_or_zero(object, "layers", limits::kLayers.or_zero());
  run.heads = integer_or_zero(object, "heads", limits::kHeads.or_zero());
  run.seq = integer_or_zero(object, "seq", limits::kTokens.or_zero());
  run.vocab = integer_or_zero(object, "vocab", limits::kRows.or_zero());
  run.gpus = integer_or_zero(object, "gpus", limits::kDevices.or_zero());
  run.tp = integer_or_zero(object, "tp", limits::kDegree.or_zero());
  run.pp = integer_or_zero(object, "pp", limits::kDegree.or_zero());
  run.cp = integer_or_zero(object, "cp", limits::kDegree.or_zero());
  run.dp = integer_or_zero(object, "dp", limits::kDegree.or_zero());
  run.interleave = std::max(1, integer_or_zero(object, "interleave", limits::kChunks.or_zero()));
  run.global_batch = integer_or_zero(object, "gbs", limits::kGlobalBatch.or_zero());
  run.micro_batch = integer_or_zero(object, "mbs", limits::kGlobalBatch.or_zero());
  run.local_batch = integer_or_zero(object, "local_batch", limits::kGlobalBatch.or_zero());
  run.partition = integers(object, "partition", limits::kDegree.or_zero());
  run.stage_gpus = integers(object, "stage_gpus", limits::kDevices);
  // Zero is none at all, null and absence that the source does not say.
  for (const char* key : {"gpus", "tp", "pp", "cp", "dp", "hidden", "layers", "heads", "seq"})
    if (const auto given = known(object, key); given && given->raw() == 0 && run.nonsense.empty())
      run.nonsense = fmt::format("its {} is 0", key);
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
