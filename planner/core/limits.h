#pragma once
// How large every number of a cluster, profile, plan, model or report may be, and every flag that
// names such a number. The limits lie far beyond any machine or model, and so far below those of
// their types that sums and products of a few stay finite: no reader hands on an infinity or a NaN.

#include <cstdint>
#include <limits>

namespace braid {

// Inclusive.
struct IntRange {
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
};

// Of a whole number.
struct WholeLimit {
  const char* name;
  std::int64_t low, high;
  const char* unit = "";
  constexpr operator IntRange() const { return {low, high}; }
  // With zero for "none" or "not said".
  constexpr IntRange or_zero() const { return {0, high}; }
};

// Of any number.
struct RealLimit {
  const char* name;
  double low, high;
  const char* unit = "";
};

namespace limits {

constexpr std::int64_t power_of_two(int exponent) { return std::int64_t{1} << exponent; }

// Models. Every product of a layer's closed forms stays inside 63 bits.
inline constexpr WholeLimit kTokens{"tokens", 1, power_of_two(24), "tokens"};
inline constexpr WholeLimit kRows{"rows of a table", 1, power_of_two(24)};
inline constexpr WholeLimit kWidth{"width", 1, power_of_two(20), "elements"};
inline constexpr WholeLimit kHeads{"heads", 1, power_of_two(14)};
inline constexpr WholeLimit kExperts{"experts", 1, power_of_two(12)};
inline constexpr WholeLimit kLayers{"layers", 1, 10'000};
inline constexpr WholeLimit kPixels{"pixels of a side", 1, power_of_two(14)};
inline constexpr double kAboveZero = std::numeric_limits<double>::min();
inline constexpr RealLimit kRotaryBase{"rotary base", kAboveZero, 1e15};
inline constexpr RealLimit kEpsilon{"epsilon of a norm", kAboveZero, 1e3};
inline constexpr RealLimit kScale{"scale", kAboveZero, 1e9};
inline constexpr RealLimit kDeviation{"standard deviation of first weights", kAboveZero, 1e3};

// Clusters.
inline constexpr WholeLimit kDevices{"devices", 1, power_of_two(20)};
inline constexpr WholeLimit kNodes{"nodes", 1, power_of_two(20)};
inline constexpr WholeLimit kNodeDevices{"devices of a node", 1, 1024};
inline constexpr WholeLimit kMemory{"memory of a device", 1, power_of_two(56), "bytes"};
inline constexpr RealLimit kBandwidth{"bandwidth", 1, 1e18, "bytes a second"};
inline constexpr RealLimit kPeak{"peak", 1, 1e21, "FLOP/s"};
inline constexpr RealLimit kLatency{"latency", 0, 1e9, "s"};

// Profiles.
inline constexpr WholeLimit kRanks{"ranks", 1, power_of_two(20)};
inline constexpr WholeLimit kSide{"side of a product", 1, power_of_two(40)};
inline constexpr WholeLimit kElements{"elements", 1, power_of_two(40)};
inline constexpr WholeLimit kMessage{"bytes of a message", 1, power_of_two(40), "bytes"};
inline constexpr WholeLimit kMeasurements{"measurements", 0, power_of_two(30)};
inline constexpr RealLimit kMeasuredTime{"measured time", 0, 1e9, "s"};
inline constexpr RealLimit kSamples{"samples of a pass", 1e-9, 1e9};
inline constexpr RealLimit kMeasuredBytes{"measured bytes", 0, 1e18, "bytes"};
inline constexpr RealLimit kWait{"waits of ranks for each other", 0, 1000};
inline constexpr RealLimit kNoise{"noise", 0, 1e9};
inline constexpr RealLimit kShare{"share", 0, 1};
inline constexpr RealLimit kSlowdown{"slow-down", 1, 100};
inline constexpr RealLimit kCorrection{"correction of a price", 1e-3, 1e3};

// Plans and their predictions.
inline constexpr WholeLimit kGlobalBatch{"global batch", 1, power_of_two(24), "samples"};
inline constexpr WholeLimit kMicroBatches{"micro-batches", 1, power_of_two(22)};
inline constexpr WholeLimit kDegree{"degree of parallelism", 1, power_of_two(20)};
inline constexpr WholeLimit kChunks{"chunks of a stage", 1, 10'000};
// Passes of a micro-batch through a chunk of a stage: what playing a schedule keeps in memory.
inline constexpr WholeLimit kPasses{"micro-batches × stages × chunks", 1, power_of_two(22)};
inline constexpr WholeLimit kPlannedBytes{"bytes of a device", 0, power_of_two(56), "bytes"};
inline constexpr RealLimit kPredictedTime{"predicted time", 0, 1e30, "s"};
// Under Galvatron's formulas a reduction may give time back.
inline constexpr RealLimit kTimeTerm{"term of a time", -1e30, 1e30, "s"};
inline constexpr RealLimit kSamplesPerSecond{"samples a second", 0, 1e30};
inline constexpr RealLimit kInFlight{"micro-batches in flight", 0, 1 << 22};

// Reports of runs.
inline constexpr RealLimit kFigure{"figure of a report", -1e300, 1e300};

// Flags that count what no file says: steps, rows of a table.
inline constexpr WholeLimit kCount{"count", 1, power_of_two(40)};
inline constexpr WholeLimit kThreads{"threads", 1, 1024};

}  // namespace limits
}  // namespace braid
