#include "runtime/train/corrupted_spans.h"

#include <algorithm>
#include <vector>

#include "planner/core/error.h"
#include "runtime/ops/cross_entropy.h"

namespace braid::train {

namespace {

constexpr std::uint64_t kPlaces = 0x7370616e;  // of the random numbers of this file

// `whole` in as many parts of at least one, all ways to cut it equally likely.
std::vector<std::int64_t> parts_of(std::int64_t whole, std::int64_t parts, std::uint64_t key) {
  std::vector<std::int64_t> lengths;
  std::int64_t begin = 0, missing = parts - 1;  // cuts
  for (std::int64_t at = 1; at < whole && missing > 0; ++at) {
    const auto places = static_cast<std::uint64_t>(whole - at);
    if (mix(key, static_cast<std::uint64_t>(at)) % places >= static_cast<std::uint64_t>(missing))
      continue;
    lengths.push_back(at - begin);
    begin = at;
    --missing;
  }
  lengths.push_back(whole - begin);
  return lengths;
}

}  // namespace

SpanCounts span_counts(std::int64_t length, std::int64_t room) {
  const auto spans_of = [&](std::int64_t tokens) {
    // Between two spans stays a token at least.
    return std::clamp<std::int64_t>((tokens + kSpan / 2) / kSpan, 1,
                                    std::max<std::int64_t>(1, length - tokens));
  };
  std::int64_t tokens = std::max<std::int64_t>(1, (length * kCutOut + 50) / 100);
  while (tokens > 1 && tokens + spans_of(tokens) + 1 > room) --tokens;
  return {tokens, spans_of(tokens)};
}

std::int64_t most_spans(std::int64_t length, std::int64_t room) {
  return span_counts(length, room).spans;
}

std::int64_t num_sentinels(const Model& model) {
  const LayerShape& embedding = model.type_of(0).shape;
  return most_spans(embedding.tokens, embedding.carried_tokens) + 1;
}

std::int64_t corrupt(std::uint64_t key, std::span<const std::int64_t> text,
                     std::int64_t first_sentinel, std::span<std::int64_t> encoder,
                     std::span<std::int64_t> decoder, std::span<std::int64_t> labels) {
  const auto length = static_cast<std::int64_t>(text.size());
  const SpanCounts counts = span_counts(length, static_cast<std::int64_t>(labels.size()));
  const std::vector<std::int64_t> kept = parts_of(length - counts.tokens, counts.spans, mix(key));
  const std::vector<std::int64_t> cut = parts_of(counts.tokens, counts.spans, mix(key, kPlaces));
  std::ranges::fill(encoder, 0);
  std::ranges::fill(labels, ops::kIgnoreLabel);
  auto in = encoder.begin();
  auto told = labels.begin();
  auto next = text.begin();
  std::int64_t sentinel = first_sentinel;
  for (std::size_t i = 0; i < cut.size(); ++i) {
    in = std::copy_n(next, kept[i], in);
    next += kept[i];
    *in++ = *told++ = sentinel--;
    told = std::copy_n(next, cut[i], told);
    next += cut[i];
  }
  *told++ = sentinel;
  // A decoder sees its labels one token late; behind their end nothing counts.
  std::ranges::fill(decoder, 0);
  const auto end = std::min(told, labels.end() - 1);
  std::copy(labels.begin(), end, decoder.begin() + 1);
  return in - encoder.begin();
}

SampleSource corrupted_spans(const Model& model, const std::shared_ptr<const Dataset>& data,
                             const SampleOrder& order, const ObjectiveOptions& options) {
  const LayerShape& embedding = model.type_of(0).shape;
  const auto tokens = static_cast<std::size_t>(embedding.tokens);
  const auto length_of = [data, tokens](std::int64_t index) {
    return data->length(index).value_or(static_cast<std::int64_t>(tokens));
  };
  SampleSource source;
  source.ignores_labels = true;
  source.read = [=, first = options.mask_token.value_or(embedding.vocab - 1),
                 seed = mix(options.seed, kPlaces)](std::int64_t sample,
                                                    std::span<std::int64_t> inputs,
                                                    std::span<std::int64_t> labels) {
    const std::int64_t index = order.at(sample);
    std::vector<std::int64_t> text(tokens + 1);
    data->read(index, text);
    text.resize(static_cast<std::size_t>(length_of(index)));
    corrupt(mix(seed, static_cast<std::uint64_t>(sample)), text, first, inputs.first(tokens),
            inputs.subspan(tokens), labels);
  };
  source.length = [=, room = embedding.carried_tokens](std::int64_t sample) {
    const std::int64_t length = length_of(order.at(sample));
    const SpanCounts counts = span_counts(length, room);
    return length - counts.tokens + counts.spans;
  };
  return source;
}

}  // namespace braid::train
