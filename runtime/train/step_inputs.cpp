#include "runtime/train/step_inputs.h"

#include <ATen/ops/empty.h>

#include "runtime/train/sample_tensors.h"

namespace braid::train {

// From pinned memory: an ordinary copy would wait for all that the device was given before.
void send(const at::Tensor& from, at::Tensor& to, at::Device device) {
  if (!from.defined()) return;
  const at::Tensor ready = device.is_cuda() ? from.pin_memory() : from;
  if (to.defined() && device.is_cuda())
    to.copy_(ready, /*non_blocking=*/true);
  else
    to = ready.to(device, /*non_blocking=*/true);
}

std::int64_t StepInputs::first_sample(const parallel::Layer& layer, int micro_batch,
                                      std::int64_t step) const {
  return first_sample_ + (step - first_step_) * plan_.global_batch +
         micro_batch * plan_.micro_batch() + layer.site().first_sample;
}

Tokens StepInputs::read(const parallel::Layer& layer, int micro_batch, std::int64_t step) const {
  const parallel::Site& site = layer.site();
  const std::int64_t first = first_sample(layer, micro_batch, step);
  Tokens tokens;
  if (site.shape.patch_inputs > 0) tokens.patches = sample_patches(samples_, first, site);
  if (site.shape.pooled) tokens.labels = sample_classes(samples_, first, site.samples);
  if (tokens.patches.defined() || tokens.labels.defined()) return tokens;
  const LayerShape& embedding = plan_.model.type_of(0).shape;
  const LayerShape& head = plan_.model.type_of(plan_.model.num_layers() - 1).shape;
  const auto inputs = static_cast<std::size_t>(embedding.tokens + embedding.carried_tokens);
  std::vector<std::int64_t> ids(inputs), labels(static_cast<std::size_t>(head.tokens));
  const auto rows = [&](const std::vector<parallel::Segment>& segments) {
    return at::empty({parallel::count(segments), site.samples}, at::kLong);
  };
  // One sample's column of `to`: the values of its tokens.
  const auto fill = [&](const at::Tensor& to, const std::vector<parallel::Segment>& segments,
                        std::int64_t sample, const std::int64_t* values) {
    auto* out = to.data_ptr<std::int64_t>() + sample;
    for (const parallel::Segment& s : segments)
      for (std::int64_t t = s.begin; t < s.end; ++t, out += site.samples) *out = values[t];
  };
  const bool embeds = site.shape.kind == LayerKind::embedding;
  (embeds ? tokens.ids : tokens.labels) = rows(site.inner_tokens());
  if (site.beside) tokens.decoder_ids = rows(site.beside->inner_tokens());
  for (std::int64_t sample = 0; sample < site.samples; ++sample) {
    samples_.read(first + sample, ids, labels);
    fill(embeds ? tokens.ids : tokens.labels, site.inner_tokens(), sample,
         embeds ? ids.data() : labels.data());
    if (site.beside)
      fill(tokens.decoder_ids, site.beside->inner_tokens(), sample, ids.data() + embedding.tokens);
  }
  return tokens;
}

const Tokens& StepInputs::on_device(const parallel::Layer& layer, int micro_batch,
                                    std::int64_t step) {
  Slot& slot = slots_[{&layer, micro_batch}];
  if (slot.step != step) {
    const Tokens now = read(layer, micro_batch, step);
    send(now.ids, slot.tokens.ids, device_);
    send(now.labels, slot.tokens.labels, device_);
    send(now.decoder_ids, slot.tokens.decoder_ids, device_);
    if (now.patches.defined()) {
      at::Tensor bytes;
      send(now.patches, bytes, device_);
      place_patches(bytes, layer.site(), slot.tokens.patches);
    }
    slot.step = step;
  }
  return slot.tokens;
}

}  // namespace braid::train
