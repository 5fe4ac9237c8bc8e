// How long the exact search takes: on cases people have, and as layers and devices grow. Its JSON
// output
// (--benchmark_format=json) is what scripts/plot_search draws.

#include <benchmark/benchmark.h>

#include <filesystem>
#include <string>

#include "planner/core/json.h"
#include "planner/search/search.h"

namespace braid {
namespace {

const std::filesystem::path kConfigs = std::filesystem::path(BRAID_SOURCE_DIR) / "configs";

Model model(const std::string& name, int blocks = 0) {
  const std::filesystem::path file = kConfigs / "models" / (name + ".json");
  Json json = read_json(file);
  if (blocks > 0) json["num_hidden_layers"] = blocks;
  return model_from_json(json, file.string());
}

Cluster cluster(const std::string& name, int devices = 0) {
  const Cluster whole = read_cluster(kConfigs / "clusters" / (name + ".json"));
  return devices > 0 ? shrink(whole, devices) : whole;
}

void run(benchmark::State& state, const Model& model, const Cluster& cluster, std::int64_t batch) {
  SearchOptions options;
  options.global_batch = batch;
  SearchResult result;
  for (auto _ : state) {
    result = search(model, cluster, nullptr, options);
    benchmark::DoNotOptimize(result);
  }
  state.counters["devices"] = cluster.num_devices();
  state.counters["layers"] = model.num_layers();
  state.counters["configurations"] = result.statistics.configurations;
  state.counters["solved"] = result.statistics.solved;
  state.counters["strategies"] = static_cast<double>(result.statistics.strategies);
  if (!result.plan) return state.SkipWithError("nothing fits");
  state.counters["plan_seconds"] = result.plan->prediction.iteration.value();
  state.counters["gap_percent"] = 100 * result.gap();
}

void search_llama2_7b_on_8(benchmark::State& state) {
  run(state, model("llama2-7b"), cluster("a100-80g-8"), 64);
}
void search_llama3_405b_on_1024(benchmark::State& state) {
  run(state, model("llama3-405b"), cluster("h100-128x8"), 2048);
}
void search_llama3_405b_on_16384(benchmark::State& state) {
  run(state, model("llama3-405b"), cluster("h100-2048x8"), 8192);
}
BENCHMARK(search_llama2_7b_on_8)->Unit(benchmark::kMillisecond);
BENCHMARK(search_llama3_405b_on_1024)->Unit(benchmark::kMillisecond);
BENCHMARK(search_llama3_405b_on_16384)->Unit(benchmark::kMillisecond);

// Blocks of Llama-2-7B on 64 devices.
void layers_sweep(benchmark::State& state) {
  run(state, model("llama2-7b", static_cast<int>(state.range(0))), cluster("h100-2048x8", 64), 256);
}
BENCHMARK(layers_sweep)->RangeMultiplier(2)->Range(8, 256)->Unit(benchmark::kMillisecond);

// Llama-3-70B with two samples a device.
void devices_sweep(benchmark::State& state) {
  const auto devices = static_cast<int>(state.range(0));
  run(state, model("llama3-70b"), cluster("h100-2048x8", devices), 2 * state.range(0));
}
BENCHMARK(devices_sweep)->RangeMultiplier(2)->Range(64, 16384)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace braid
