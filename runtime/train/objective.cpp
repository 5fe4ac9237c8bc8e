#include "runtime/train/objective.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "planner/core/error.h"
#include "planner/model/image.h"
#include "runtime/models/model.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/train/corrupted_spans.h"

namespace braid::train {

namespace {

const LayerShape& embedding_of(const Model& model) { return model.type_of(0).shape; }
const LayerShape& head_of(const Model& model) {
  return model.type_of(model.num_layers() - 1).shape;
}

std::int64_t mask_of(const Dataset& data, const ObjectiveOptions& options) {
  return options.mask_token.value_or(data.vocabulary());
}

void require_classes(const Model& model, const Dataset& data) {
  const ImageShape wanted = image_shape_of(model);
  const std::optional<ImageShape> image = data.image();
  const LayerShape& embedding = embedding_of(model);
  const std::int64_t across = patches_across(model);
  const std::int64_t side = image->side / across;
  if (image->side % across != 0 || side * side * image->channels != embedding.patch_inputs)
    throw Error(
        {.what = fmt::format("images of {0} × {0} with {1} channels, the model's are {2} × {2} "
                             "with {3}",
                             image->side, image->channels, wanted.side, wanted.channels),
         .where = data.describe(),
         .fix = "write the images again at the model's image_size and num_channels"});
  if (data.vocabulary() > head_of(model).vocab)
    throw Error({.what = fmt::format("the data has {} classes, the model knows {}",
                                     data.vocabulary(), head_of(model).vocab),
                 .where = data.describe(),
                 .fix = fmt::format("choose a model with num_labels of {}", data.vocabulary())});
}

void require_tokens(const Model& model, const Dataset& data) {
  const std::int64_t known = embedding_of(model).vocab;
  if (data.vocabulary() <= known) return;
  throw Error({.what = fmt::format("the data has tokens up to {}, the model knows {}",
                                   data.vocabulary() - 1, known),
               .where = data.describe(),
               .fix = fmt::format("choose data of at most {} different tokens, or a model with a "
                                  "vocabulary of {} or more",
                                  known, data.vocabulary())});
}

// Ids from the first sentinel down to the last one stand for spans, and for nothing else.
void require_sentinels(const Model& model, const Dataset& data, const ObjectiveOptions& options) {
  const LayerShape& embedding = embedding_of(model);
  const std::int64_t room = embedding.carried_tokens;
  if (room < kLeastTargets)
    throw Error(
        {.what = fmt::format("the decoder has {} tokens: one span needs {}", room, kLeastTargets),
         .where = fmt::format("model '{}'", model.name),
         .fix = fmt::format("set braid_decoder_sequence to {} or more", kLeastTargets)});
  const std::int64_t first = options.mask_token.value_or(embedding.vocab - 1);
  const std::int64_t last = first - num_sentinels(model) + 1;
  if (first < embedding.vocab && last >= data.vocabulary()) return;
  throw Error({.what = fmt::format("ids {} to {} stand for spans, the data has tokens up to {} and "
                                   "the model knows {}",
                                   last, first, data.vocabulary() - 1, embedding.vocab),
               .where = options.mask_token ? "--mask-token" : data.describe(),
               .fix = fmt::format("choose data of fewer tokens, a shorter sequence, or the id of "
                                  "the first span from {} to {}: --mask-token N",
                                  data.vocabulary() + first - last, embedding.vocab - 1)});
}

void require_mask(const Model& model, const Dataset& data, const ObjectiveOptions& options) {
  const std::int64_t mask = mask_of(data, options);
  const std::int64_t known = embedding_of(model).vocab;
  if (mask >= 0 && mask < known) return;
  throw Error(
      {.what = options.mask_token
                   ? fmt::format("the mask is token {}, the model knows {}", mask, known)
                   : fmt::format("the data uses all {} tokens of the model: none is left to "
                                 "be the mask",
                                 known),
       .where = options.mask_token ? "--mask-token" : data.describe(),
       .fix = options.mask_token ? fmt::format("choose an id from 0 to {}", known - 1)
                                 : "name the id that stands for a hidden token: --mask-token N"});
}

// Reads a sample's tokens and one more.
std::vector<std::int64_t> read_tokens(const Dataset& data, std::int64_t index, std::size_t count) {
  std::vector<std::int64_t> tokens(count + 1);
  data.read(index, tokens);
  return tokens;
}

SampleSource next_tokens(const std::shared_ptr<const Dataset>& data, const SampleOrder& order) {
  return {.read =
              [data, order](std::int64_t sample, std::span<std::int64_t> inputs,
                            std::span<std::int64_t> labels) {
                const std::int64_t index = order.at(sample);
                const auto tokens = read_tokens(*data, index, inputs.size());
                std::copy(tokens.begin(), tokens.end() - 1, inputs.begin());
                std::copy(tokens.begin() + 1, tokens.end(), labels.begin());
                // A causal model never sees what is behind: padding needs no mask, only no labels.
                if (const auto length = data->length(index))
                  std::fill(labels.begin() + std::max<std::int64_t>(0, *length - 1), labels.end(),
                            ops::kIgnoreLabel);
              },
          .ignores_labels = data->pads()};
}

// Hides some of the first `length` tokens. The key is of the sample in training.
void mask(std::uint64_t key, std::size_t length, std::int64_t mask_token, std::int64_t vocabulary,
          std::span<std::int64_t> inputs, std::span<std::int64_t> labels) {
  const auto ask = [&](std::size_t i) {
    labels[i] = inputs[i];
    const std::uint64_t choice = mix(key, 2 * i + 1);
    if (choice % 10 < kMasked) {
      inputs[i] = mask_token;
    } else if (choice % 10 == kMasked) {
      inputs[i] = static_cast<std::int64_t>(mix(choice) % static_cast<std::uint64_t>(vocabulary));
    }
  };
  bool asked = false;
  for (std::size_t i = 0; i < length; ++i) {
    labels[i] = ops::kIgnoreLabel;
    if (mix(key, 2 * i) % 100 >= kAsked) continue;
    ask(i);
    asked = true;
  }
  if (!asked) ask(mix(key) % length);
  std::fill(labels.begin() + static_cast<std::ptrdiff_t>(length), labels.end(), ops::kIgnoreLabel);
}

SampleSource masked_tokens(const std::shared_ptr<const Dataset>& data, const SampleOrder& order,
                           const ObjectiveOptions& options) {
  const std::int64_t vocabulary = data->vocabulary();
  SampleSource source;
  source.ignores_labels = true;
  source.read = [data, order, vocabulary, mask_token = mask_of(*data, options),
                 seed = mix(options.seed, 0x6d61736b)](std::int64_t sample,
                                                       std::span<std::int64_t> inputs,
                                                       std::span<std::int64_t> labels) {
    const std::int64_t index = order.at(sample);
    const auto tokens = read_tokens(*data, index, inputs.size());
    std::copy(tokens.begin(), tokens.end() - 1, inputs.begin());
    const auto length = static_cast<std::size_t>(
        data->length(index).value_or(static_cast<std::int64_t>(inputs.size())));
    mask(mix(seed, static_cast<std::uint64_t>(sample)), length, mask_token, vocabulary, inputs,
         labels);
  };
  if (data->pads())
    source.length = [data, order](std::int64_t sample) { return *data->length(order.at(sample)); };
  return source;
}

SampleSource image_classes(const Model& model, const std::shared_ptr<const Dataset>& data,
                           const SampleOrder& order) {
  const ImageShape shape = *data->image();
  const std::int64_t across = patches_across(model);
  SampleSource source;
  source.image = [data, order, shape, across](std::int64_t sample,
                                              std::span<std::uint8_t> patches) {
    if (patches.empty()) return data->read_image(order.at(sample), {});
    std::vector<std::uint8_t> values(static_cast<std::size_t>(shape.values()));
    const std::int64_t label = data->read_image(order.at(sample), values);
    const std::int64_t patch = shape.side / across;
    std::uint8_t* to = patches.data();
    const auto copy_patch = [&](std::int64_t top, std::int64_t left) {
      for (std::int64_t c = 0; c < shape.channels; ++c)
        for (std::int64_t y = top; y < top + patch; ++y)
          to = std::copy_n(values.data() + (c * shape.side + y) * shape.side + left, patch, to);
    };
    for (std::int64_t row = 0; row < across; ++row)
      for (std::int64_t column = 0; column < across; ++column)
        copy_patch(row * patch, column * patch);
    return label;
  };
  return source;
}

}  // namespace

Objective objective_of(const Model& model) {
  if (embedding_of(model).patch_inputs > 0) return Objective::image_class;
  if (embedding_of(model).carried_tokens > 0) return Objective::corrupted_spans;
  return models::is_causal(model) ? Objective::next_token : Objective::masked_tokens;
}

std::int64_t token_limit(const Model& model, const ObjectiveOptions& options) {
  const std::int64_t known = embedding_of(model).vocab;
  switch (objective_of(model)) {
    case Objective::next_token:
      return known;
    case Objective::masked_tokens:  // the last id is the mask
      return options.mask_token ? known : known - 1;
    case Objective::corrupted_spans:
      return std::max<std::int64_t>(
          0, options.mask_token.value_or(known - 1) + 1 - num_sentinels(model));
    case Objective::image_class:
      return head_of(model).vocab;
  }
  internal_failure("unknown objective", std::source_location::current());
}

void require_fitting(const Model& model, const Dataset& data, const ObjectiveOptions& options) {
  const Objective objective = objective_of(model);
  const bool wants_images = objective == Objective::image_class;
  if (wants_images != data.image().has_value())
    throw Error({.what = fmt::format("the model reads {}, the data has {}",
                                     wants_images ? "images" : "tokens",
                                     wants_images ? "tokens" : "images"),
                 .where = data.describe(),
                 .fix = wants_images
                            ? "choose synthetic or images:FILE"
                            : "choose synthetic, text:FILE, lines:FILE or megatron:PREFIX"});
  if (wants_images) return require_classes(model, data);
  require_tokens(model, data);
  if (objective == Objective::masked_tokens) require_mask(model, data, options);
  if (objective == Objective::corrupted_spans) require_sentinels(model, data, options);
}

SampleSource sample_source(const Model& model, const std::shared_ptr<const Dataset>& data,
                           const ObjectiveOptions& options) {
  const SampleOrder order(data->samples(), options.seed, options.shuffle);
  switch (objective_of(model)) {
    case Objective::next_token:
      return next_tokens(data, order);
    case Objective::masked_tokens:
      return masked_tokens(data, order, options);
    case Objective::corrupted_spans:
      return corrupted_spans(model, data, order, options);
    case Objective::image_class:
      return image_classes(model, data, order);
  }
  internal_failure("unknown objective", std::source_location::current());
}

}  // namespace braid::train
