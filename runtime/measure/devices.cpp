// What a device does by itself, while all others do the same: matrix products, copies.

#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <fmt/core.h>

#include <algorithm>

#include "planner/core/text.h"
#include "runtime/measure/hardware_parts.h"

namespace braid::measure {

namespace {

struct Product {
  std::int64_t m, n, k;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};
// Squares, then few tokens on a large matrix and a thin inner dim.
constexpr Product kProducts[] = {
    {256, 256, 256},    {512, 512, 512},    {1024, 1024, 1024}, {2048, 2048, 2048},
    {4096, 4096, 4096}, {8192, 8192, 8192}, {128, 4096, 4096},  {4096, 4096, 128},
};
constexpr double kLongest = 0.3;  // seconds of one product
// CPUs without units for bf16 take many times as long for it, and nobody trains in it there.
constexpr std::int64_t kLargestBf16OnCpu = 512;

double mean_of(const HardwareTask& task, const std::vector<double>& by_kind) {
  double sum = 0;
  for (std::size_t i = 0; i < by_kind.size(); ++i) {
    const NodeKind& kind = task.machine.kinds[i];
    sum += by_kind[i] * kind.nodes * kind.ranks;
  }
  return sum / task.bench.world().size();
}

void measure_products(const HardwareTask& task, Precision precision, Profile& profile,
                      std::vector<double>& best) {
  Bench& bench = task.bench;
  const auto options = at::TensorOptions(bench.device()).dtype(task.type_of(precision));
  // Ranks that share a core take turns of some milliseconds: what is shorter runs as if alone. On a
  // GPU, many in a row hide what it takes to begin one.
  const bool cpu = bench.device().is_cpu();
  const double least_seconds = cpu ? 0.03 : 0.001;
  double best_rate = cpu ? 1e11 : 1e14;  // a guess on the high side, then what is above it
  double rate = best_rate;               // of the last product
  for (const Product& p : kProducts) {
    const bool too_slow =
        precision == Precision::bf16 && cpu && std::max({p.m, p.n, p.k}) > kLargestBf16OnCpu;
    const bool too_long = p.flops() / rate > kLongest;
    const bool too_large = scaled(Bytes(p.m * p.n + p.m * p.k + p.k * p.n), 4) > task.room;
    if (too_slow || too_long || too_large) {
      bench.expect(-1);
      continue;
    }
    const int times = std::max(1, static_cast<int>(least_seconds * best_rate / p.flops()));
    const auto seconds =
        bench.run(fmt::format("gemm {} {}x{}x{}", name_of(precision), p.m, p.n, p.k), [&] {
          // Of the usual size: equal numbers take less power, and a GPU is the faster for it.
          const at::Tensor a = at::empty({p.m, p.k}, options).normal_();
          const at::Tensor b = at::empty({p.k, p.n}, options).normal_();
          at::Tensor c = at::empty({p.m, p.n}, options);
          return task.by_kind(bench.time([&] {
            for (int i = 0; i < times; ++i) at::matmul_out(c, a, b);
          }) / times);
        });
    if (!seconds) continue;
    rate = p.flops() / mean_of(task, *seconds);
    best_rate = std::max(best_rate, rate);
    profile.gemms.push_back({precision, p.m, p.n, p.k, FlopsPerSecond(rate)});
    best.resize(seconds->size());
    for (std::size_t i = 0; i < best.size(); ++i)
      best[i] = std::max(best[i], p.flops() / (*seconds)[i]);
  }
}

void measure_memory(const HardwareTask& task, DeviceRates& rates) {
  constexpr std::int64_t kSize = std::int64_t{256} << 20;  // beyond every cache
  Bench& bench = task.bench;
  const std::int64_t elements = std::min(kSize, task.room.value() / 2) / 4;
  const auto seconds = bench.run(fmt::format("memory copy {}", 4 * elements), [&] {
    const auto options = at::TensorOptions(bench.device()).dtype(at::kFloat);
    const at::Tensor from = at::ones({elements}, options);
    at::Tensor to = at::ones({elements}, options);
    return task.by_kind(bench.time([&] { to.copy_(from); }));
  });
  if (!seconds) return;
  // A copy reads and writes.
  for (const double time : *seconds)
    rates.memory.push_back(8.0 * static_cast<double>(elements) / time);
}

}  // namespace

std::vector<double> HardwareTask::by_kind(double mine) const {
  std::vector<double> values(machine.kinds.size());
  const auto kind = static_cast<std::size_t>(machine.kind_of(bench.world().rank()));
  values[kind] = among(bench, machine.kinds[kind].nodes * machine.kinds[kind].ranks, mine);
  return values;
}

int num_device_measurements() { return 1 + 2 * static_cast<int>(std::size(kProducts)); }

DeviceRates measure_devices(const HardwareTask& task, Profile& profile) {
  DeviceRates rates;
  measure_memory(task, rates);
  measure_products(task, Precision::fp32, profile, rates.fp32);
  measure_products(task, Precision::bf16, profile, rates.bf16);
  return rates;
}

}  // namespace braid::measure
