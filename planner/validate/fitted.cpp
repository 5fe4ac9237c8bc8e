#include "planner/validate/fitted.h"

#include <algorithm>
#include <string_view>

#include "planner/core/error.h"
#include "planner/validate/fit.h"

namespace braid {
namespace {

struct Fitted {
  std::string_view setup, name;
  double value;
};

// What `braid validate RUNS --fit` printed for the 955 runs of docs/accuracy.md.
constexpr Fitted kFitted[] = {
    {"vtrain_single", "gemm", 0.9228},
    {"vtrain_single", "misaligned", 0.2852},
    {"vtrain_single", "batched", 0.3216},
    {"vtrain_single", "streaming", 0.7008},
    {"vtrain_single", "kernel", 3.775e-06},
    {"vtrain_single", "inside", 2.063e+11},
    {"vtrain_single", "inside_latency", 0.0002774},
    {"vtrain_single", "card_latency", 0.0002},
    {"vtrain_single", "card", 1e+10},
    {"vtrain_single", "point", 4.386e+11},
    {"vtrain_single", "traffic", 79.25},
    {"vtrain_single", "score_traffic", 11.23},
    {"vtrain_single", "unfused_traffic", 19.95},
    {"vtrain_single", "loss_traffic", 28.47},
    {"vtrain_single", "optimizer_bytes", 13.1},
    {"vtrain_single", "send_exposed", 0.1792},
    {"vtrain_single", "host_forward", 0.001836},
    {"vtrain_single", "host_backward", 0.001326},
    {"vtrain_single", "host_collective", 5.09e-05},
    {"vtrain_single", "host_unfused", 0.0007872},
    {"vtrain_single", "host_batch", 0.001565},
    {"vtrain_single", "host_stage", 0.0002025},
    {"vtrain_single", "sharpness", 5.481},
    {"vtrain_single", "iteration", 0.0009957},
    {"vtrain_multi", "gemm", 0.8346},
    {"vtrain_multi", "batched", 0.1888},
    {"vtrain_multi", "inside", 2.747e+11},
    {"vtrain_multi", "inside_latency", 0.0001863},
    {"vtrain_multi", "card_latency", 0.0001599},
    {"vtrain_multi", "card", 1.187e+10},
    {"vtrain_multi", "traffic", 32.62},
    {"vtrain_multi", "send_exposed", 0.46},
    {"megatron_h100", "gemm", 0.6747},
    {"megatron_h100", "flash", 0.4112},
    {"megatron_h100", "traffic", 41.48},
    {"megatron_h100", "loss_traffic", 25.25},
    {"megatron_h100", "tensor_overlap", 0.741},
    {"megatron_h100", "iteration", 0.03648},
    {"torchtitan", "gemm", 0.515},
    {"torchtitan", "gemm_fp8", 0.3792},
    {"torchtitan", "flash", 0.3395},
    {"torchtitan", "traffic", 51.71},
    {"torchtitan", "eager", 2.167},
    {"torchtitan", "rowwise", 8.585},
    {"torchtitan", "selective_repeats", 0.877},
    {"torchtitan", "tensor_overlap", 0.4017},
    {"amp_homogeneous", "gemm", 0.2424},
    {"amp_homogeneous", "batched", 0.1522},
    {"amp_homogeneous", "inside", 3.143e+09},
    {"amp_homogeneous", "inside_latency", 0.0005823},
    {"amp_homogeneous", "card", 1.054e+09},
    {"amp_homogeneous", "card_latency", 0.0009875},
    {"amp_homogeneous", "host_forward", 0.00146},
    {"amp_homogeneous", "host_backward", 0.002416},
    {"amp_homogeneous", "host_collective", 0.0001998},
    {"amp_homogeneous", "iteration", 0.04472},
    {"amp_het_cluster", "gemm", 0.3466},
    {"amp_het_cluster", "batched", 0.2044},
    {"amp_het_cluster", "streaming", 0.6746},
    {"amp_het_cluster", "inside", 8.411e+09},
    {"amp_het_cluster", "inside_latency", 0.003345},
    {"amp_het_cluster", "card", 3.546e+08},
    {"amp_het_cluster", "card_latency", 0.001024},
    {"amp_het_cluster", "host_forward", 0.00152},
    {"amp_het_cluster", "host_backward", 0.00254},
    {"amp_het_cluster", "host_collective", 0.0001999},
    {"amp_het_cluster", "iteration", 0.0578},
    {"amp_het_model", "gemm", 0.3404},
    {"amp_het_model", "batched", 0.194},
    {"amp_het_model", "streaming", 0.6749},
    {"amp_het_model", "inside", 3.617e+09},
    {"amp_het_model", "inside_latency", 0.0008245},
    {"amp_het_model", "card", 1.884e+08},
    {"amp_het_model", "card_latency", 0.001282},
    {"amp_het_model", "host_forward", 0.001495},
    {"amp_het_model", "host_backward", 0.002464},
    {"amp_het_model", "host_collective", 0.0001899},
    {"amp_het_model", "iteration", 0.06742},
    {"aceso_eurosys24", "gemm", 0.8453},
    {"aceso_eurosys24", "batched", 0.2125},
    {"aceso_eurosys24", "traffic", 43.65},
    {"aceso_plans_run_by_mist/a100", "gemm", 0.7548},
    {"aceso_plans_run_by_mist/a100", "batched", 0.2273},
    {"aceso_plans_run_by_mist/a100", "traffic", 44.11},
    {"aceso_plans_run_by_mist/a10g", "gemm", 0.8618},
    {"aceso_plans_run_by_mist/a10g", "batched", 0.2599},
    {"aceso_plans_run_by_mist/a10g", "traffic", 42.99},
    {"aceso_plans_run_by_mist/a10g", "inside", 4.053e+09},
    {"aceso_plans_run_by_mist/a10g", "card", 1.199e+09},
    {"aceso_plans_run_by_mist/l4", "gemm", 0.6356},
    {"aceso_plans_run_by_mist/l4", "batched", 0.1893},
    {"aceso_plans_run_by_mist/l4", "traffic", 47.04},
    {"aceso_plans_run_by_mist/l4", "inside", 6.13e+09},
    {"aceso_plans_run_by_mist/l4", "card", 1.233e+09},
    {"mist_l4", "gemm", 0.4392},
    {"mist_l4", "batched", 0.2543},
    {"mist_l4", "traffic", 46.36},
    {"mist_l4", "inside", 6e+09},
    {"mist_l4", "card", 1.2e+09},
};

// The ninth decile of the errors that `braid validate RUNS --cross-validate 5` found; a tenth where
// nothing is fitted.
struct Interval {
  std::string_view setup;
  double fraction;
};
constexpr Interval kIntervals[] = {
    {"vtrain_single", 0.10},
    {"vtrain_multi", 0.19},
    {"megatron_sc21_t1", 0.10},
    {"megatron_h100", 0.22},
    {"torchtitan", 0.14},
    {"amp_homogeneous", 0.12},
    {"amp_het_cluster", 0.36},
    {"amp_het_model", 0.28},
    {"aceso_eurosys24", 0.18},
    {"aceso_plans_run_by_mist/a100", 0.25},
    {"aceso_plans_run_by_mist/a10g", 0.25},
    {"aceso_plans_run_by_mist/l4", 0.25},
    {"mist_l4", 0.22},
};

}  // namespace

void apply_fitted(std::vector<Setup>& setups) {
  for (const Calibration& calibration : calibrations()) {
    for (const Parameter& parameter : parameters_of(setups, calibration)) {
      const auto found = std::ranges::find_if(kFitted, [&](const Fitted& one) {
        return one.setup == calibration.setups.front() && one.name == parameter.name;
      });
      internal_check(found != std::end(kFitted), "a figure that may be fitted has no fitted value");
      for (double* place : parameter.places) *place = found->value;
    }
  }
  for (Setup& setup : setups)
    for (const Interval& interval : kIntervals)
      if (interval.setup == key_of(setup)) setup.interval = interval.fraction;
}

}  // namespace braid
