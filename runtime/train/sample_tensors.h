#pragma once
// What a sample source gives, as tensors of a layer's samples.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/parallel/site.h"
#include "runtime/train/sample_source.h"

namespace braid::train {

// [samples] int64 on the CPU: tokens that are not padding.
at::Tensor sample_lengths(const SampleSource& source, std::int64_t first, std::int64_t samples);
// [1, samples] int64 on the CPU: the classes of images.
at::Tensor sample_classes(const SampleSource& source, std::int64_t first, std::int64_t samples);
// [narrow tokens, samples, values of a patch] on the CPU, as bytes.
at::Tensor sample_patches(const SampleSource& source, std::int64_t first,
                          const parallel::Site& site);
// Such bytes as values of -1 to 1, in the type that the site computes in; a class token's are zero.
// `to` is made the first time.
void place_patches(const at::Tensor& bytes, const parallel::Site& site, at::Tensor& to);

}  // namespace braid::train
