// braid primepar: the partition of every operator of a layer, in space and time.

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>

#include "cli/common.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/explain/primepar.h"
#include "planner/search/primepar_points.h"

namespace braid::cli {
namespace {

struct PrimeparFlags {
  TaskFlags task;
  std::string micro_batch, accumulate, layers, precision, alpha;
  std::string variant = "plus_minus";
  std::string format = "text";
  bool pareto = false;
  bool one_port = false;
};

constexpr PrimeparVariant kVariants[] = {PrimeparVariant::paper, PrimeparVariant::plus_minus,
                                         PrimeparVariant::spatial};

// Seconds a gigabyte, as people write it; inside it is seconds a byte.
double read_alpha(const std::string& text) {
  if (text.empty()) return 0;
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value < 0)
    throw Error({.what = fmt::format("'{}' is no price of memory", text),
                 .where = "--alpha",
                 .fix = "write seconds a gigabyte of a layer's states and stash, 0 or more"});
  return value * 1e-9;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run_primepar(const PrimeparFlags& flags) {
  const Format format = read_format(flags.format);
  PrimeparAnswer answer;
  answer.variant = read_enum(flags.variant, "--variant", kVariants);
  answer.alpha = read_alpha(flags.alpha);
  const auto micro_batch = read_count(flags.micro_batch, "--micro-batch", limits::kGlobalBatch);
  const auto accumulate = read_count(flags.accumulate, "--accumulate", limits::kGlobalBatch);
  const auto layers = read_count(flags.layers, "--layers", limits::kLayers);
  const Precision precision = flags.precision.empty()
                                  ? Precision::bf16
                                  : read_enum(flags.precision, "--precision", kPrecisions);
  const Task task = load_task(flags.task);
  expect_precision(task.cluster, precision, "--precision");

  answer.model = task.model.name;
  answer.cluster = task.cluster.name;
  answer.devices = task.cluster.num_devices();
  answer.task = primepar_task(task.model, flags.task.model);
  answer.task.precision = precision;
  answer.task.batch = micro_batch.value_or(8);
  answer.task.accumulate = accumulate.value_or(1);
  if (layers) answer.task.layers = static_cast<int>(*layers);

  const auto start = std::chrono::steady_clock::now();
  const PrimeparMachine machine(task.cluster, precision, {},
                                flags.one_port ? NetworkShare::of_one : NetworkShare::of_members);
  const PrimeparSpace space(answer.task, machine, answer.variant);
  answer.result = optimize(space, answer.alpha);
  answer.search_seconds = seconds_since(start);
  answer.graph = space.graph();
  for (const Scheme scheme : kSchemes)
    std::ranges::copy(scheme_plans(scheme, answer.task, machine),
                      std::back_inserter(answer.schemes));
  if (flags.pareto) {
    answer.pareto = primepar_pareto(space, alpha_sweep(answer.result.plan.totals));
    answer.executable.emplace(legal_layers(answer.task, machine), machine);
  }

  if (format == Format::json) {
    print(primepar_json(answer));
  } else {
    print(render_primepar(answer, terminal_options()));
  }
  return kOk;
}

}  // namespace

void add_primepar(const Verb& app, Run& run) {
  const auto flags = std::make_shared<PrimeparFlags>();
  const Verb verb = app.add("primepar", "partition every operator of a layer in space and time");
  const Options option(verb);
  option("--model", flags->task.model, "FILE", "Hugging Face config.json or Braid model")
      .required();
  option("--cluster", flags->task.cluster, "FILE", "nodes, devices and links").required();
  option("--devices", flags->task.devices, "N", "the cluster's first N devices: 2, 4, … 64");
  option("--micro-batch", flags->micro_batch, "N",
         "samples of a micro-batch, over all devices (default 8)");
  option("--seq", flags->task.sequence, "N", "tokens of a sample (default: the model's)");
  option("--accumulate", flags->accumulate, "N",
         "micro-batches between two reductions of gradients (default 1)");
  option("--layers", flags->layers, "N", "blocks in a row (default: the model's)");
  option("--precision", flags->precision, "NAME", "bf16 (default), fp32 or fp8");
  option("--variant", flags->variant, "NAME",
         "plus_minus (default), paper (as published) or spatial (without squares)");
  option("--alpha", flags->alpha, "X", "price of memory: seconds a gigabyte (default 0)");
  verb.flag("--pareto", flags->pareto,
            "sweep the price of memory: plans that nothing beats in time and memory, and the "
            "strategies of 'braid plan' that run them");
  verb.flag("--one-port", flags->one_port,
            "a collective across nodes gets one device's share of the network, not the shares "
            "of all its members in a node");
  option("--format", flags->format, "NAME", "text (default) or json");
  verb.examples(
      {"braid primepar --model configs/models/opt-175b.json "
       "--cluster configs/clusters/v100-32g-8x4.json --devices 8 --micro-batch 8 "
       "--precision fp32 --variant paper"});
  verb.when_chosen([flags, &run] { run = [flags] { return run_primepar(*flags); }; });
}

}  // namespace braid::cli
