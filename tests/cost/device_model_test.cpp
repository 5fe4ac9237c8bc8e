// Products on an imagined device: 10 processors of two tiles each, 1 TFLOP/s, nothing lost.

#include "planner/cost/device_model.h"

#include <gtest/gtest.h>

#include <random>

namespace braid {
namespace {

constexpr double kTile = 2.0 * 128 * 128;  // FLOPs of a tile and one step of k
constexpr DeviceModel kPlain{.name = "plain",
                             .peak = 1e12,
                             .peak_fp8 = 2e12,
                             .bandwidth = 1e12,
                             .processors = 10,
                             .gemm = 1,
                             .gemm_fp8 = 1,
                             .misaligned = 0.5,
                             .streaming = 0.5,
                             .kernel = 0};

TEST(DeviceModel, AFullWaveRunsAtThePeak) {
  // 4 × 5 tiles fill ten processors twice over.
  EXPECT_DOUBLE_EQ(product_time(kPlain, {512, 640, 64}), 20 * kTile * 64 / 1e12);
}

TEST(DeviceModel, OneTileMoreCostsAnotherWave) {
  // 21 tiles in a row: the second wave has one.
  EXPECT_DOUBLE_EQ(product_time(kPlain, {128, 21 * 128, 64}), 2 * 20 * kTile * 64 / 1e12);
}

TEST(DeviceModel, AnOddSideHalvesTheRate) {
  const double even = product_time(kPlain, {512, 640, 64});
  EXPECT_GT(product_time(kPlain, {512, 640, 63}), 1.9 * even * 63 / 64);
}

TEST(DeviceModel, Fp8TakesItsOwnPeak) {
  EXPECT_DOUBLE_EQ(product_time(kPlain, {512, 640, 64}, true),
                   product_time(kPlain, {512, 640, 64}) / 2);
}

TEST(DeviceModel, StreamingTakesItsShareOfTheBandwidth) {
  EXPECT_DOUBLE_EQ(streaming_time(kPlain, 1e12), 2);
}

TEST(DeviceModel, NoProductIsFasterThanThePeakOfAnyKnownDevice) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> side(1, 20'000);
  for (const DeviceModel& device : device_models()) {
    for (int i = 0; i < 200; ++i) {
      const Product p{static_cast<double>(side(random)), static_cast<double>(side(random)),
                      static_cast<double>(side(random))};
      EXPECT_GE(product_time(device, p), 2 * p.m * p.n * p.k / device.peak) << device.name;
    }
  }
}

TEST(DeviceModel, EveryKnownDeviceIsWhole) {
  EXPECT_EQ(find_device_model("abacus"), nullptr);
  for (const char* name : {"V100", "T4", "A100", "A10G", "L4", "H100", "H200", "RTX 4090"}) {
    const DeviceModel* device = find_device_model(name);
    ASSERT_NE(device, nullptr) << name;
    EXPECT_GT(device->peak, 0) << name;
    EXPECT_GT(device->bandwidth, 0) << name;
    EXPECT_GT(device->memory, 0) << name;
    EXPECT_GT(device->processors, 0) << name;
    for (const double share :
         {device->gemm, device->misaligned, device->batched, device->flash, device->streaming}) {
      EXPECT_GT(share, 0) << name;
      EXPECT_LE(share, 1) << name;
    }
  }
}

}  // namespace
}  // namespace braid
