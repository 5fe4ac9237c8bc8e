#pragma once
// What a model is asked to predict of its data, and the samples that follow from it.

#include <cstdint>
#include <memory>
#include <optional>

#include "planner/model/model.h"
#include "runtime/train/data.h"
#include "runtime/train/worker.h"

namespace braid::train {

enum class Objective {
  next_token,       // of text, by a causal model
  masked_tokens,    // some tokens are hidden or changed, and asked for (Devlin et al., 2019)
  corrupted_spans,  // spans of text are cut out, and told by the decoder (Raffel et al., 2020)
  image_class,
};
Objective objective_of(const Model& model);

// Of every hundred tokens so many are asked for, in the mean, and at least one of a sample; of ten
// of those, so many are replaced by the mask, and one by any token.
inline constexpr std::uint64_t kAsked = 15;
inline constexpr std::uint64_t kMasked = 8;
// Of every hundred tokens so many are cut out, in spans of so many in the mean.
inline constexpr std::int64_t kCutOut = 15;
inline constexpr std::int64_t kSpan = 3;

struct ObjectiveOptions {
  std::uint64_t seed = 1;  // of the samples' order and of masks
  // None: the first id that the data leaves free. Of corrupted spans, what stands for the first one
  // (the next has the id below, and so on); none: the vocabulary's last.
  std::optional<std::int64_t> mask_token = {};
  bool shuffle = true;
};

// Ids that the data may hold are below this: the model's vocabulary, but for those that stand for
// hidden tokens or cut-out spans where the options do not name them.
std::int64_t token_limit(const Model& model, const ObjectiveOptions& options);

// Throws an Error unless the data is of the model's kind and within its vocabulary.
void require_fitting(const Model& model, const Dataset& data, const ObjectiveOptions& options);
// Which sample comes when, and what is masked in it, follows from its number in training alone.
SampleSource sample_source(const Model& model, const std::shared_ptr<const Dataset>& data,
                           const ObjectiveOptions& options);

}  // namespace braid::train
