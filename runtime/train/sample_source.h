#pragma once
// Where the samples of a run come from.

#include <cstdint>
#include <functional>
#include <span>

namespace braid::train {

// Samples by their number in the whole run: `sequence` inputs and as many labels (ops::kIgnoreLabel
// where a token does not count). Of an encoder-decoder, the inputs of the encoder, behind them
// those of the decoder, and the decoder's labels. Called from every rank that needs them, maybe at
// the same time.
struct SampleSource {
  std::function<void(std::int64_t sample, std::span<std::int64_t> inputs,
                     std::span<std::int64_t> labels)>
      read;
  bool ignores_labels = false;  // whether any label may be kIgnoreLabel
  // Where samples are padded: how many tokens are not (of an encoder-decoder, of the encoder's). At
  // least one, the first ones.
  std::function<std::int64_t(std::int64_t sample)> length = {};
  // Of an image model, instead of read: fills the patches one after the other, each [channel, row,
  // column], and returns the class. No patches: the class alone is asked for. A value of 0 to 255
  // stands for one of -1 to 1.
  std::function<std::int64_t(std::int64_t sample, std::span<std::uint8_t> patches)> image = {};
};

}  // namespace braid::train
