#pragma once
// Softmax cross-entropy over a vocabulary of which each rank may hold a slice. Three local steps;
// the caller reduces between them, so that nothing here knows ranks.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace braid::ops {

inline constexpr std::int64_t kIgnoreLabel = -100;

// logits [rows, width] are the vocabulary from `first` on, of which the first `real` columns exist
// (the rest is padding, and counts for nothing). labels [rows] int64. Statistics in fp32 (fp64 for
// fp64).
struct VocabularySlice {
  std::int64_t first = 0;
  std::int64_t real = 0;
};
// All at once, where this rank holds the whole vocabulary and a kernel takes the logits: the loss
// of each row, and the logits overwritten by their gradient. Nothing where it is to be done in
// steps. NOLINTNEXTLINE(readability-identifier-naming): ATen's in-place mark
std::optional<at::Tensor> cross_entropy_(const at::Tensor& logits, const at::Tensor& labels,
                                         const VocabularySlice& slice, double scale);

// [rows]: the largest logit; -inf for a slice of padding alone.
at::Tensor logits_max(const at::Tensor& logits, const VocabularySlice& slice);
// [rows, 2]: the sum of exp(logit - max) and the label's logit - max (0 where it is elsewhere).
at::Tensor exp_sums(const at::Tensor& logits, const at::Tensor& max, const at::Tensor& labels,
                    const VocabularySlice& slice);
// Both in one pass over a slice, where a kernel takes the logits: sums against the slice's own max.
// Nothing where they are to be made one after the other.
struct SliceStatistics {
  at::Tensor max, sums;
};
std::optional<SliceStatistics> slice_statistics(const at::Tensor& logits, const at::Tensor& labels,
                                                const VocabularySlice& slice);
// Its sums against the largest of all slices.
at::Tensor against(const SliceStatistics& own, const at::Tensor& max, const at::Tensor& labels,
                   const VocabularySlice& slice);
// [rows]: the loss of each row from the reduced sums; 0 for an ignored label.
at::Tensor row_losses(const at::Tensor& sums, const at::Tensor& labels);
// Overwrites logits by their gradient: (softmax - one_hot(label)) · scale, zero in padding and in
// ignored rows. Returns it. NOLINTNEXTLINE(readability-identifier-naming): ATen's in-place mark
at::Tensor logits_gradient_(at::Tensor logits, const at::Tensor& max, const at::Tensor& sums,
                            const at::Tensor& labels, const VocabularySlice& slice, double scale);

}  // namespace braid::ops
