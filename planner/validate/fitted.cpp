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
    {"vtrain_single", "gemm", 0.92},
    {"vtrain_single", "misaligned", 0.2851},
    {"vtrain_single", "batched", 0.2957},
    {"vtrain_single", "streaming", 0.7115},
    {"vtrain_single", "kernel", 3.88e-06},
    {"vtrain_single", "inside", 2.021e+11},
    {"vtrain_single", "inside_latency", 0.0002685},
    {"vtrain_single", "card_latency", 0.0002},
    {"vtrain_single", "card", 1e+10},
    {"vtrain_single", "point", 4.313e+11},
    {"vtrain_single", "traffic", 72.59},
    {"vtrain_single", "score_traffic", 11.45},
    {"vtrain_single", "unfused_traffic", 19.93},
    {"vtrain_single", "loss_traffic", 28.7},
    {"vtrain_single", "optimizer_bytes", 13.22},
    {"vtrain_single", "send_exposed", 0.184},
    {"vtrain_single", "host_forward", 0.00182},
    {"vtrain_single", "host_backward", 0.001343},
    {"vtrain_single", "host_collective", 4.821e-05},
    {"vtrain_single", "host_unfused", 0.0007902},
    {"vtrain_single", "host_batch", 0.001613},
    {"vtrain_single", "host_stage", 0.0001971},
    {"vtrain_single", "sharpness", 5.433},
    {"vtrain_single", "iteration", 0.0009572},
    {"vtrain_multi", "gemm", 0.8187},
    {"vtrain_multi", "batched", 0.2391},
    {"vtrain_multi", "inside", 2.892e+11},
    {"vtrain_multi", "inside_latency", 0.0001276},
    {"vtrain_multi", "card_latency", 0.0001089},
    {"vtrain_multi", "card", 9.141e+09},
    {"vtrain_multi", "traffic", 31.52},
    {"vtrain_multi", "send_exposed", 0.4634},
    {"megatron_h100", "gemm", 0.6771},
    {"megatron_h100", "flash", 0.4118},
    {"megatron_h100", "traffic", 41.42},
    {"megatron_h100", "loss_traffic", 25.25},
    {"megatron_h100", "tensor_overlap", 0.7536},
    {"megatron_h100", "iteration", 0.03597},
    {"torchtitan", "gemm", 0.5152},
    {"torchtitan", "gemm_fp8", 0.3793},
    {"torchtitan", "flash", 0.3395},
    {"torchtitan", "traffic", 51.72},
    {"torchtitan", "eager", 2.169},
    {"torchtitan", "rowwise", 8.574},
    {"torchtitan", "selective_repeats", 0.8756},
    {"torchtitan", "tensor_overlap", 0.4042},
    {"amp_homogeneous", "gemm", 0.2422},
    {"amp_homogeneous", "batched", 0.1519},
    {"amp_homogeneous", "inside", 3.154e+09},
    {"amp_homogeneous", "inside_latency", 0.000565},
    {"amp_homogeneous", "card", 1.053e+09},
    {"amp_homogeneous", "card_latency", 0.0009877},
    {"amp_homogeneous", "host_forward", 0.00146},
    {"amp_homogeneous", "host_backward", 0.002416},
    {"amp_homogeneous", "host_collective", 0.0001998},
    {"amp_homogeneous", "iteration", 0.04473},
    {"amp_het_cluster", "gemm", 0.3873},
    {"amp_het_cluster", "inside", 1.196e+10},
    {"amp_het_cluster", "inside_latency", 0.001018},
    {"amp_het_cluster", "card", 2.834e+08},
    {"amp_het_cluster", "send", 4.306e+08},
    {"amp_het_cluster", "stall", 0.05879},
    {"amp_het_model", "inside", 1.235e+10},
    {"amp_het_model", "inside_latency", 0.0009944},
    {"amp_het_model", "card", 2.431e+08},
    {"amp_het_model", "send", 4.716e+08},
    {"amp_het_model", "score_traffic", 73.91},
    {"amp_het_model", "iteration", 0.05569},
    {"aceso_eurosys24", "gemm", 0.8607},
    {"aceso_eurosys24", "batched", 0.2081},
    {"aceso_eurosys24", "traffic", 43.85},
    {"aceso_plans_run_by_mist/a100", "gemm", 0.7954},
    {"aceso_plans_run_by_mist/a100", "batched", 0.2079},
    {"aceso_plans_run_by_mist/a100", "traffic", 44.95},
    {"aceso_plans_run_by_mist/a10g", "gemm", 0.8048},
    {"aceso_plans_run_by_mist/a10g", "batched", 0.2561},
    {"aceso_plans_run_by_mist/a10g", "score_traffic", 6.126},
    {"aceso_plans_run_by_mist/a10g", "inside", 3.813e+09},
    {"aceso_plans_run_by_mist/a10g", "card", 1.179e+09},
    {"aceso_plans_run_by_mist/l4", "gemm", 0.6403},
    {"aceso_plans_run_by_mist/l4", "batched", 0.1953},
    {"aceso_plans_run_by_mist/l4", "score_traffic", 10.96},
    {"aceso_plans_run_by_mist/l4", "inside", 5.599e+09},
    {"aceso_plans_run_by_mist/l4", "card", 1.209e+09},
    {"mist_l4", "gemm", 0.4299},
    {"mist_l4", "batched", 0.2475},
    {"mist_l4", "score_traffic", 5.12},
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
    {"vtrain_multi", 0.15},
    {"megatron_sc21_t1", 0.10},
    {"megatron_h100", 0.22},
    {"torchtitan", 0.14},
    {"amp_homogeneous", 0.12},
    {"amp_het_cluster", 0.20},
    {"amp_het_model", 0.17},
    {"aceso_eurosys24", 0.18},
    {"aceso_plans_run_by_mist/a100", 0.21},
    {"aceso_plans_run_by_mist/a10g", 0.21},
    {"aceso_plans_run_by_mist/l4", 0.21},
    {"mist_l4", 0.10},
};

}  // namespace

void apply_fitted(std::vector<RunSetup>& setups) {
  for (const Calibration& calibration : calibrations()) {
    for (const Parameter& parameter : parameters_of(setups, calibration)) {
      const auto found = std::ranges::find_if(kFitted, [&](const Fitted& one) {
        return one.setup == calibration.setups.front() && one.name == parameter.name;
      });
      internal_check(found != std::end(kFitted), "a figure that may be fitted has no fitted value");
      for (double* place : parameter.places) *place = found->value;
    }
  }
  for (RunSetup& setup : setups)
    for (const Interval& interval : kIntervals)
      if (interval.setup == key_of(setup)) setup.interval = interval.fraction;
}

}  // namespace braid
