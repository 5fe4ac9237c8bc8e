#include "runtime/train/sample_tensors.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

namespace braid::train {

at::Tensor sample_lengths(const SampleSource& source, std::int64_t first, std::int64_t samples) {
  at::Tensor lengths = at::empty({samples}, at::kLong);
  auto* out = lengths.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < samples; ++i) *out++ = source.length(first + i);
  return lengths;
}

at::Tensor sample_classes(const SampleSource& source, std::int64_t first, std::int64_t samples) {
  at::Tensor classes = at::empty({1, samples}, at::kLong);
  auto* out = classes.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < samples; ++i) *out++ = source.image(first + i, {});
  return classes;
}

at::Tensor sample_patches(const SampleSource& source, std::int64_t first,
                          const parallel::Site& site) {
  const LayerShape& s = site.shape;
  const std::int64_t rows = parallel::count(site.narrow_tokens);
  const std::int64_t ahead = s.class_token ? 1 : 0;  // tokens that are no patches
  at::Tensor patches = at::zeros({rows, site.samples, s.patch_inputs}, at::kByte);
  auto* out = patches.data_ptr<std::uint8_t>();
  std::vector<std::uint8_t> image(static_cast<std::size_t>((s.tokens - ahead) * s.patch_inputs));
  for (std::int64_t i = 0; i < site.samples; ++i) {
    source.image(first + i, image);
    std::int64_t row = 0;
    for (const parallel::Segment& segment : site.narrow_tokens)
      for (std::int64_t t = segment.begin; t < segment.end; ++t, ++row) {
        if (t < ahead) continue;
        std::copy_n(image.data() + (t - ahead) * s.patch_inputs, s.patch_inputs,
                    out + (row * site.samples + i) * s.patch_inputs);
      }
  }
  return patches;
}

void place_patches(const at::Tensor& bytes, const parallel::Site& site, at::Tensor& to) {
  if (!to.defined()) to = at::empty(bytes.sizes(), bytes.options().dtype(site.numerics.compute));
  to.copy_(bytes);
  at::add_out(to, at::scalar_tensor(-1.0, at::kDouble), to, 1 / 127.5);
  if (site.shape.class_token && parallel::holds_first(site.narrow_tokens))
    to.narrow(0, 0, 1).zero_();
}

}  // namespace braid::train
