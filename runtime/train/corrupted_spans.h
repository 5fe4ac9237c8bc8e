#pragma once
// Span corruption (Raffel et al., 2020): some spans of a text are cut out, a sentinel in the place
// of each, and the decoder tells them: sentinel, span, sentinel, span, …, and one more sentinel to
// end.

#include <cstdint>
#include <memory>
#include <span>

#include "planner/model/model.h"
#include "runtime/train/objective.h"

namespace braid::train {

// A sentinel, a token and the sentinel at the end.
inline constexpr std::int64_t kLeastTargets = 3;

// How many tokens of `length` are cut out, and in how many spans, where the decoder has `room`.
struct SpanCounts {
  std::int64_t tokens = 0, spans = 0;
};
SpanCounts span_counts(std::int64_t length, std::int64_t room);
// Of any text of at most so many tokens.
std::int64_t most_spans(std::int64_t length, std::int64_t room);

// Ids that stand for spans, where texts are as long as the model takes.
std::int64_t num_sentinels(const Model& model);

// The key is of the sample in training. Fills the encoder's inputs and returns how many of them are
// no padding; the decoder's, which begin with 0 and go on with the labels; and those.
std::int64_t corrupt(std::uint64_t key, std::span<const std::int64_t> text,
                     std::int64_t first_sentinel, std::span<std::int64_t> encoder,
                     std::span<std::int64_t> decoder, std::span<std::int64_t> labels);

SampleSource corrupted_spans(const Model& model, const std::shared_ptr<const Dataset>& data,
                             const SampleOrder& order, const ObjectiveOptions& options);

}  // namespace braid::train
