#include <algorithm>

#include "planner/validate/fit.h"

namespace braid {
namespace {

// One fittable figure: where it lies in a setup, what to expect of it and how far it may be off.
struct Figure {
  const char* name;
  double DeviceModel::*of_device;
  double Fabric::*of_fabric;
  double Program::*of_program;
  double expected, spread;
};

constexpr Figure device(const char* name, double DeviceModel::*at, double expected, double spread) {
  return {name, at, nullptr, nullptr, expected, spread};
}
constexpr Figure fabric(const char* name, double Fabric::*at, double expected, double spread) {
  return {name, nullptr, at, nullptr, expected, spread};
}
constexpr Figure program(const char* name, double Program::*at, double expected, double spread) {
  return {name, nullptr, nullptr, at, expected, spread};
}

// The one calibration with many runs: 774 of Megatron-DeepSpeed on A100.
const std::vector<Figure> kMegatronDeepspeed = {
    device("gemm", &DeviceModel::gemm, 0.78, 0.05),
    device("misaligned", &DeviceModel::misaligned, 0.3, 0.3),
    device("batched", &DeviceModel::batched, 0.25, 0.2),
    device("streaming", &DeviceModel::streaming, 0.8, 0.05),
    device("kernel", &DeviceModel::kernel, 4e-6, 0.15),
    fabric("inside", &Fabric::inside, 230e9, 0.08),
    fabric("inside_latency", &Fabric::inside_latency, 200e-6, 0.3),
    fabric("card_latency", &Fabric::card_latency, 200e-6, 0.3),
    fabric("card", &Fabric::card, 10e9, 0.15),
    fabric("point", &Fabric::point, 100e9, 0.5),
    program("traffic", &Program::traffic, 38, 0.1),
    program("score_traffic", &Program::score_traffic, 9, 0.1),
    program("unfused_traffic", &Program::unfused_traffic, 20, 0.15),
    program("loss_traffic", &Program::loss_traffic, 24, 0.15),
    program("optimizer_bytes", &Program::optimizer_bytes, 40, 0.15),
    program("send_exposed", &Program::send_exposed, 1, 0.5),
    program("host_forward", &Program::host_forward, 1e-3, 0.4),
    program("host_backward", &Program::host_backward, 1.6e-3, 0.4),
    program("host_collective", &Program::host_collective, 50e-6, 0.5),
    program("host_unfused", &Program::host_unfused, 0.3e-3, 0.4),
    program("host_batch", &Program::host_batch, 4e-3, 0.4),
    program("host_stage", &Program::host_stage, 1e-3, 0.5),
    program("sharpness", &Program::sharpness, 5, 0.2),
    program("iteration", &Program::iteration, 3e-3, 0.4),
};

// The same program on many nodes of another machine: what belongs to the host stays.
const std::vector<Figure> kManyNodes = {
    device("gemm", &DeviceModel::gemm, 0.75, 0.08),
    device("batched", &DeviceModel::batched, 0.25, 0.2),
    fabric("inside", &Fabric::inside, 230e9, 0.08),
    fabric("inside_latency", &Fabric::inside_latency, 200e-6, 0.3),
    fabric("card_latency", &Fabric::card_latency, 200e-6, 0.3),
    fabric("card", &Fabric::card, 10e9, 0.15),
    program("traffic", &Program::traffic, 38, 0.1),
    program("send_exposed", &Program::send_exposed, 0.5, 0.5),
};

// H100 under Megatron-LM, with everything overlapped.
const std::vector<Figure> kMegatronH100 = {
    device("gemm", &DeviceModel::gemm, 0.70, 0.08),
    device("flash", &DeviceModel::flash, 0.45, 0.15),
    program("traffic", &Program::traffic, 38, 0.2),
    program("loss_traffic", &Program::loss_traffic, 24, 0.2),
    program("tensor_overlap", &Program::tensor_overlap, 0.7, 0.15),
    program("iteration", &Program::iteration, 20e-3, 0.5),
};

// H100 of 500 W under PyTorch, compiled or not, bf16 or fp8.
const std::vector<Figure> kTorchtitan = {
    device("gemm", &DeviceModel::gemm, 0.60, 0.10),
    device("gemm_fp8", &DeviceModel::gemm_fp8, 0.45, 0.2),
    device("flash", &DeviceModel::flash, 0.40, 0.15),
    program("traffic", &Program::traffic, 38, 0.2),
    program("eager", &Program::eager, 1.8, 0.3),
    program("rowwise", &Program::rowwise, 2, 0.5),
    program("selective_repeats", &Program::selective_repeats, 0.4, 0.3),
    program("tensor_overlap", &Program::tensor_overlap, 0.5, 0.2),
};

// Amazon's small nodes under DeepSpeed: slow links, slow hosts.
const std::vector<Figure> kDeepspeed = {
    device("gemm", &DeviceModel::gemm, 0.40, 0.2),
    device("batched", &DeviceModel::batched, 0.2, 0.3),
    fabric("inside", &Fabric::inside, 5e9, 0.3),
    fabric("inside_latency", &Fabric::inside_latency, 0.3e-3, 0.5),
    fabric("card", &Fabric::card, 1.2e9, 0.2),
    fabric("card_latency", &Fabric::card_latency, 1e-3, 0.5),
    program("host_forward", &Program::host_forward, 1.5e-3, 0.4),
    program("host_backward", &Program::host_backward, 2.5e-3, 0.4),
    program("host_collective", &Program::host_collective, 0.2e-3, 0.5),
    program("iteration", &Program::iteration, 50e-3, 0.5),
};
// Nodes of V100, and one of T4 that the set above has told of. The stall is what the runs show and
// nothing documents; 40 ms is what a TCP receiver may wait with an acknowledgement.
// Cross-validation says which set can bear how many figures.
const std::vector<Figure> kDeepspeedMixed = {
    device("gemm", &DeviceModel::gemm, 0.40, 0.2),
    fabric("inside", &Fabric::inside, 12e9, 0.2),
    fabric("inside_latency", &Fabric::inside_latency, 1e-3, 0.2),
    fabric("card", &Fabric::card, 0.28e9, 0.2),
    fabric("send", &Fabric::send, 0.42e9, 0.3),
    fabric("stall", &Fabric::stall, 40e-3, 0.5),
};
// The same nodes of V100 with TransGAN. Its attention is plain PyTorch, ten reads and writes of
// each score of each of its four heads.
const std::vector<Figure> kDeepspeedV100 = {
    fabric("inside", &Fabric::inside, 12e9, 0.15),
    fabric("inside_latency", &Fabric::inside_latency, 1e-3, 0.2),
    fabric("card", &Fabric::card, 0.28e9, 0.2),
    fabric("send", &Fabric::send, 0.42e9, 0.2),
    program("score_traffic", &Program::score_traffic, 80, 0.3),
    program("iteration", &Program::iteration, 50e-3, 0.5),
};

// One kind of device under a planner's own runtime: what its products, its memory and its links
// reach.
const std::vector<Figure> kPlanned = {
    device("gemm", &DeviceModel::gemm, 0.78, 0.1),
    device("batched", &DeviceModel::batched, 0.2, 0.2),
    program("traffic", &Program::traffic, 45, 0.2),
};
const std::vector<Figure> kPlannedPcie = {
    device("gemm", &DeviceModel::gemm, 0.65, 0.15),
    device("batched", &DeviceModel::batched, 0.2, 0.2),
    program("score_traffic", &Program::score_traffic, 9, 0.3),
    fabric("inside", &Fabric::inside, 6e9, 0.3),
    fabric("card", &Fabric::card, 1.2e9, 0.3),
};

struct Known {
  Calibration calibration;
  const std::vector<Figure>* figures;
};

// Relative errors up to these are taken for noise: one machine measured again and again, and
// figures from tables.
constexpr double kQuiet = 0.01, kNoisy = 0.05;

const std::vector<Known>& known() {
  static const std::vector<Known> kAll = {
      {{{"vtrain_single"}, kQuiet}, &kMegatronDeepspeed},
      {{{"vtrain_multi"}, kQuiet}, &kManyNodes},
      {{{"megatron_h100"}, kNoisy}, &kMegatronH100},
      {{{"torchtitan"}, kNoisy}, &kTorchtitan},
      {{{"amp_homogeneous"}, kNoisy}, &kDeepspeed},
      {{{"amp_het_cluster"}, kNoisy}, &kDeepspeedMixed},
      {{{"amp_het_model"}, kNoisy}, &kDeepspeedV100},
      {{{"aceso_eurosys24"}, kNoisy}, &kPlanned},
      {{{"aceso_plans_run_by_mist/a100"}, kNoisy}, &kPlanned},
      {{{"aceso_plans_run_by_mist/a10g"}, kNoisy}, &kPlannedPcie},
      {{{"aceso_plans_run_by_mist/l4"}, kNoisy}, &kPlannedPcie},
      {{{"mist_l4"}, kNoisy}, &kPlannedPcie},
  };
  return kAll;
}

double* place_of(RunSetup& setup, const Figure& figure, std::size_t which_device) {
  if (figure.of_device != nullptr) return &(setup.devices[which_device].*figure.of_device);
  if (figure.of_fabric != nullptr) return &(setup.fabric.*figure.of_fabric);
  return &(setup.program.*figure.of_program);
}

}  // namespace

std::vector<Calibration> calibrations() {
  std::vector<Calibration> all;
  for (const Known& one : known()) all.push_back(one.calibration);
  return all;
}

std::vector<Parameter> parameters_of(std::vector<RunSetup>& setups,
                                     const Calibration& calibration) {
  std::vector<Parameter> parameters;
  for (const Known& one : known()) {
    if (one.calibration.setups != calibration.setups) continue;
    for (const Figure& figure : *one.figures) {
      Parameter parameter{
          .name = figure.name, .expected = figure.expected, .spread = figure.spread};
      for (RunSetup& setup : setups) {
        const auto& keys = calibration.setups;
        if (std::ranges::find(keys, key_of(setup)) == keys.end()) continue;
        // Of a mixed cluster the first kind of device; the others keep what is known of them.
        for (std::size_t i = 0; i < setup.devices.size(); ++i) {
          if (setup.devices[i].name != setup.devices.front().name) continue;
          parameter.places.push_back(place_of(setup, figure, i));
          if (figure.of_device == nullptr) break;
        }
      }
      parameters.push_back(parameter);
    }
  }
  return parameters;
}

}  // namespace braid
