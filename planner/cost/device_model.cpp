#include "planner/cost/device_model.h"

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;
constexpr double kGiB = 1 << 30;

// Peaks, bandwidths, memory and processors: NVIDIA's data sheets (V100, T4, A100, A10, L4, H100,
// H200, Ada). The A10G is Amazon's A10 with 70 of its 125 TFLOP/s of tensor throughput (its own
// page: 35 TFLOP/s fp32, 70 of fp16). Shares of the peak: what `braid validate --fit` found for the
// published runs of docs/accuracy.md, rounded: V100 from Aceso's, T4 from AMP's, A100 from
// vTrain's, A10G and L4 from Aceso's plans under Mist, H100 from Megatron-LM's and (fp8)
// torchtitan's. No run has an H200 or an RTX 4090: the first takes H100's shares, the second the
// usual ones.
constexpr DeviceModel kDevices[] = {
    {.name = "V100",
     .peak = 125 * kTera,
     .bandwidth = 900 * kGiga,
     .memory = 32 * kGiB,
     .processors = 80,
     .gemm = 0.80,
     .batched = 0.20},
    {.name = "T4",
     .peak = 65 * kTera,
     .bandwidth = 320 * kGiga,
     .memory = 16 * kGiB,
     .processors = 40,
     .gemm = 0.25,
     .batched = 0.15},
    {.name = "A100",
     .peak = 312 * kTera,
     .bandwidth = 1940 * kGiga,
     .memory = 80 * kGiB,
     .processors = 108,
     .gemm = 0.83,
     .misaligned = 0.29,
     .batched = 0.25,
     .streaming = 0.75},
    {.name = "A10G",
     .peak = 70 * kTera,
     .bandwidth = 600 * kGiga,
     .memory = 24 * kGiB,
     .processors = 80,
     .gemm = 0.80,
     .batched = 0.26},
    {.name = "L4",
     .peak = 121 * kTera,
     .peak_fp8 = 242 * kTera,
     .bandwidth = 300 * kGiga,
     .memory = 24 * kGiB,
     .processors = 58,
     .gemm = 0.64,
     .batched = 0.20},
    {.name = "H100",
     .peak = 989 * kTera,
     .peak_fp8 = 1979 * kTera,
     .bandwidth = 3350 * kGiga,
     .memory = 80 * kGiB,
     .processors = 132,
     .gemm = 0.67,
     .gemm_fp8 = 0.38,
     .flash = 0.41},
    {.name = "H200",
     .peak = 989 * kTera,
     .peak_fp8 = 1979 * kTera,
     .bandwidth = 4800 * kGiga,
     .memory = 141 * kGiga,
     .processors = 132,
     .gemm = 0.67,
     .gemm_fp8 = 0.38,
     .flash = 0.41},
    {.name = "RTX 4090",
     .peak = 165 * kTera,
     .peak_fp8 = 330 * kTera,
     .bandwidth = 1008 * kGiga,
     .memory = 24 * kGiB,
     .processors = 128},
};

constexpr double kTileRows = 128;
constexpr double kTileColumns = 128;
constexpr double kTilesAtOnce = 2;  // blocks of a processor

bool aligned(double side) { return std::fmod(side, 8) == 0; }

}  // namespace

std::span<const DeviceModel> device_models() { return kDevices; }

const DeviceModel* find_device_model(std::string_view name) {
  const auto found = std::ranges::find(kDevices, name, &DeviceModel::name);
  return found == std::end(kDevices) ? nullptr : found;
}

double product_time(const DeviceModel& device, const Product& p, bool fp8) {
  const double tiles = std::ceil(p.m / kTileRows) * std::ceil(p.n / kTileColumns);
  const double waves = tiles / (device.processors * kTilesAtOnce);
  const double idle = std::ceil(waves) / waves;
  double rate = fp8 ? device.peak_fp8 * device.gemm_fp8 : device.peak * device.gemm;
  if (!aligned(p.m) || !aligned(p.n) || !aligned(p.k)) rate *= device.misaligned;
  return 2 * p.m * p.n * p.k / rate * idle + device.kernel;
}

double streaming_time(const DeviceModel& device, double bytes) {
  return bytes / (device.bandwidth * device.streaming);
}

}  // namespace braid
