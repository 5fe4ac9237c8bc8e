#include "runtime/ops/cross_entropy.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/ops/fused.h"
#include "runtime/ops/precision.h"
#include "runtime/ops/timed.h"

namespace braid::ops {

namespace {

// Logits are a run's largest tensor: what is made of them in fp32 is made of so many at a time.
constexpr std::int64_t kElementsAtATime = std::int64_t{1} << 24;

template <typename Body>
void for_row_chunks(const at::Tensor& logits, const Body& body) {
  const std::int64_t rows = logits.size(0);
  const std::int64_t step =
      std::max<std::int64_t>(1, kElementsAtATime / std::max<std::int64_t>(1, logits.size(1)));
  for (std::int64_t begin = 0; begin < rows; begin += step) {
    body(begin, std::min(step, rows - begin));
  }
}

struct LocalLabels {
  at::Tensor columns;    // [rows, 1]: 0 where the label is elsewhere
  at::Tensor elsewhere;  // [rows, 1] bool; true for ignored labels
};
LocalLabels local_labels(const at::Tensor& labels, const VocabularySlice& slice) {
  at::Tensor columns = at::sub(labels, slice.first).unsqueeze(-1);
  const at::Tensor elsewhere = columns.lt(0).logical_or_(columns.ge(slice.real));
  columns.masked_fill_(elsewhere, 0);
  return {columns, elsewhere};
}

fused::Vocabulary vocabulary_of(const VocabularySlice& slice) {
  return {slice.first, slice.real, kIgnoreLabel};
}

}  // namespace

std::optional<at::Tensor> cross_entropy_(const at::Tensor& logits, const at::Tensor& labels,
                                         const VocabularySlice& slice, double scale) {
  const Timed timed("cross-entropy");
  if (logits.is_meta()) return std::nullopt;
  return fused::cross_entropy(logits, labels, vocabulary_of(slice), scale);
}

std::optional<SliceStatistics> slice_statistics(const at::Tensor& logits, const at::Tensor& labels,
                                                const VocabularySlice& slice) {
  const Timed timed("cross-entropy");
  if (logits.is_meta()) return std::nullopt;
  auto found = fused::logits_statistics(logits, labels, vocabulary_of(slice));
  if (!found) return std::nullopt;
  return SliceStatistics{std::move(found->largest), std::move(found->sums)};
}

at::Tensor against(const SliceStatistics& own, const at::Tensor& max, const at::Tensor& labels,
                   const VocabularySlice& slice) {
  const at::Tensor shift = at::sub(own.max, max);
  const at::Tensor elsewhere = local_labels(labels, slice).elsewhere.squeeze(-1);
  // A slice of padding alone has a max of -inf, and a sum of 0 that stays.
  return at::stack({own.sums.select(1, 0).mul(shift.exp()),
                    own.sums.select(1, 1).add(shift).masked_fill_(elsewhere, 0)},
                   1);
}

at::Tensor logits_max(const at::Tensor& logits, const VocabularySlice& slice) {
  const Timed timed("cross-entropy");
  const at::ScalarType precision = wide(logits.scalar_type());
  if (slice.real == 0) {
    return at::full({logits.size(0)}, -std::numeric_limits<double>::infinity(),
                    logits.options().dtype(precision));
  }
  return at::amax(logits.narrow(1, 0, slice.real), {1}).to(precision);
}

at::Tensor exp_sums(const at::Tensor& logits, const at::Tensor& max, const at::Tensor& labels,
                    const VocabularySlice& slice) {
  const Timed timed("cross-entropy");
  at::Tensor sums = at::zeros({logits.size(0), 2}, max.options());
  if (logits.is_meta() || slice.real == 0) return sums;
  const at::Tensor real = logits.narrow(1, 0, slice.real);
  const at::Tensor top = max.unsqueeze(-1);
  for_row_chunks(real, [&](std::int64_t begin, std::int64_t count) {
    at::Tensor below = at::sub(real.narrow(0, begin, count), top.narrow(0, begin, count));
    sums.narrow(0, begin, count).select(1, 0).copy_(at::sum(below.exp_(), at::IntArrayRef{1}));
  });
  const LocalLabels local = local_labels(labels, slice);
  const at::Tensor label_logits =
      at::sub(at::gather(real, 1, local.columns), top).masked_fill_(local.elsewhere, 0);
  sums.narrow(1, 1, 1).copy_(label_logits);
  return sums;
}

at::Tensor row_losses(const at::Tensor& sums, const at::Tensor& labels) {
  const Timed timed("cross-entropy");
  return at::log(sums.select(1, 0))
      .sub_(sums.select(1, 1))
      .masked_fill_(labels.eq(kIgnoreLabel), 0);
}

at::Tensor logits_gradient_(at::Tensor logits, const at::Tensor& max, const at::Tensor& sums,
                            const at::Tensor& labels, const VocabularySlice& slice, double scale) {
  const Timed timed("cross-entropy");
  if (logits.is_meta()) return logits;
  if (fused::logits_gradient(logits, labels, vocabulary_of(slice), scale, max, sums)) return logits;
  const std::int64_t padding = logits.size(1) - slice.real;
  if (padding > 0) logits.narrow(1, slice.real, padding).zero_();
  if (slice.real == 0) return logits;

  const at::Tensor real = logits.narrow(1, 0, slice.real);
  const at::Tensor top = max.unsqueeze(-1);
  const at::Tensor ignored = labels.eq(kIgnoreLabel).unsqueeze(-1);
  const at::Tensor factor = sums.narrow(1, 0, 1).reciprocal().mul_(scale).masked_fill_(ignored, 0);
  const LocalLabels local = local_labels(labels, slice);
  const at::Tensor at_label =
      at::full({labels.size(0), 1}, -scale, max.options()).masked_fill_(local.elsewhere, 0);
  for_row_chunks(real, [&](std::int64_t begin, std::int64_t count) {
    const at::Tensor part = real.narrow(0, begin, count);
    at::Tensor gradient =
        at::sub(part, top.narrow(0, begin, count)).exp_().mul_(factor.narrow(0, begin, count));
    // One label a row: nothing is added twice, so the order cannot matter.
    gradient.scatter_add_(1, local.columns.narrow(0, begin, count),
                          at_label.narrow(0, begin, count));
    part.copy_(gradient);
  });
  return logits;
}

}  // namespace braid::ops
