#include "runtime/train/dry_run.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "runtime/comm/dry.h"
#include "runtime/train/worker.h"

namespace braid::train {

namespace {

// A schedule that frees a micro-batch for each that it begins holds the most of them once its
// pipeline is full. Twice the virtual stages fill it with room to spare; interleaving goes in
// rounds of as many micro-batches as stages, which this number keeps whole.
int enough_micro_batches(const PipelineShape& shape) {
  if (shape.schedule == ScheduleKind::gpipe) return shape.micro_batches;
  return std::min(shape.micro_batches, 2 * shape.stages * shape.chunks);
}

}  // namespace

HeldMemory dry_run(const Plan& plan, int device, const DryOptions& options) {
  const at::NoGradGuard no_grad;
  Plan shorter = plan;
  shorter.shape.micro_batches = enough_micro_batches(plan.shape);
  shorter.global_batch = plan.micro_batch() * shorter.shape.micro_batches;
  const auto world = comm::dry_group(device, plan.cluster.num_devices());
  WorkerOptions worker_options;
  worker_options.numerics = numerics_for(plan, options.precision, at::kMeta);
  worker_options.model.dropout = options.dropout;
  Worker worker(shorter, *world, worker_options, {});
  worker.step(0, 1);
  return held_by(worker, at::kMeta);
}

}  // namespace braid::train
