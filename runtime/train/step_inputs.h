#pragma once
// The tokens and images that a step reads, on the device. On a GPU they lie at the same place step
// after step, and are read and sent while the device is still at the step before.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>

#include "planner/plan/plan.h"
#include "runtime/parallel/layer.h"
#include "runtime/train/sample_source.h"

namespace braid::train {

// Of an embedding's or head's tokens and samples, [tokens, samples] each.
struct Tokens {
  at::Tensor ids, labels;
  at::Tensor decoder_ids;  // of an encoder-decoder's embedding
  at::Tensor patches;      // of images, as bytes on the host; their classes are labels
};

// From the host to where it lies on the device, at once or when the device comes to it; `to` is
// made the first time.
void send(const at::Tensor& from, at::Tensor& to, at::Device device);

class StepInputs {
 public:
  // Plan and samples outlive this. Step `first_step` reads samples from `first_sample` on.
  StepInputs(const Plan& plan, const SampleSource& samples, at::Device device,
             std::int64_t first_step = 0, std::int64_t first_sample = 0)
      : plan_(plan),
        samples_(samples),
        device_(device),
        first_step_(first_step),
        first_sample_(first_sample) {}

  // The number, over the whole run, of a layer's first sample.
  std::int64_t first_sample(const parallel::Layer& layer, int micro_batch, std::int64_t step) const;
  // On the host.
  Tokens read(const parallel::Layer& layer, int micro_batch, std::int64_t step) const;
  // On the device; read at once unless they are there.
  const Tokens& on_device(const parallel::Layer& layer, int micro_batch, std::int64_t step);

 private:
  struct Slot {
    std::int64_t step = -1;
    Tokens tokens;
  };

  const Plan& plan_;
  const SampleSource& samples_;
  at::Device device_;
  std::int64_t first_step_, first_sample_;
  std::map<std::pair<const parallel::Layer*, int>, Slot> slots_;  // by micro-batch too
};

}  // namespace braid::train
