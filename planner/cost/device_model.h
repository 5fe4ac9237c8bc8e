#pragma once
// Analytic device models, for when nothing was measured: what a kernel takes on a device, from its
// shape. The figures of each device, with their sources, stand in device_model.cpp.

#include <span>
#include <string>
#include <string_view>

namespace braid {

struct DeviceModel {
  std::string_view name;
  double peak = 0;       // FLOP/s, dense, fp16 or bf16 with fp32 sums
  double peak_fp8 = 0;   // zero: has none
  double bandwidth = 0;  // bytes/s of its memory
  double memory = 0;     // bytes
  int processors = 0;    // that share a product's tiles

  // Shares of the peak.
  double gemm = 0.75;       // a large matrix product
  double gemm_fp8 = 0.5;    // the same of the fp8 peak, casts included
  double misaligned = 0.3;  // of that, where a side is odd (tensor cores want multiples of 8)
  double batched = 0.25;    // attention's two products, one matrix a head, scores in memory
  double flash = 0.45;      // attention in one kernel
  // Share of the bandwidth that norms, activations and optimizers reach.
  double streaming = 0.8;
  double kernel = 4e-6;  // seconds of the smallest kernel
};

// The known devices; null if there is none of that name.
const DeviceModel* find_device_model(std::string_view name);
std::span<const DeviceModel> device_models();

struct Product {
  double m = 0, n = 0, k = 0;
};
// Tiles run in waves over the processors; the last wave may be nearly empty.
double product_time(const DeviceModel& device, const Product& product, bool fp8 = false);
double streaming_time(const DeviceModel& device, double bytes);

}  // namespace braid
