#pragma once
// One rank of a training run: builds its share of the plan and takes steps.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "planner/plan/plan.h"
#include "planner/simulate/schedule.h"
#include "runtime/models/model.h"
#include "runtime/parallel/stage.h"
#include "runtime/train/adamw.h"

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
  // column], and returns the class. No patches: the class alone is asked for.
  std::function<std::int64_t(std::int64_t sample, std::span<double> patches)> image = {};
};

struct WorkerOptions {
  parallel::Numerics numerics;
  std::uint64_t seed = 1;
  AdamW adamw;
  double clip = 1.0;  // of the gradient's norm; 0: none
  models::ModelOptions model;
  std::function<void()> before_update = {};  // gradients are complete and not yet used
};

struct StepResult {
  double loss = 0;  // mean over the global batch's tokens
  double gradient_norm = 0;
};

class Worker {
 public:
  // Throws Error unless the world has as many ranks as the plan devices. Collective.
  Worker(const Plan& plan, comm::Group& world, WorkerOptions options, SampleSource samples);

  // Step numbers count from 0. Every rank returns the same.
  StepResult step(std::int64_t number, double learning_rate);

  models::RankModel& model() { return model_; }
  const parallel::Stage& stage() const { return *stage_; }
  // Copies tied weights to where they are used; after parameters were set from outside.
  void weights_changed();

 private:
  // Of an embedding's or head's tokens and samples, [tokens, samples] each.
  struct Tokens {
    at::Tensor ids, labels;
    at::Tensor decoder_ids;  // of an encoder-decoder's embedding
  };
  parallel::Feed feed(const parallel::Layer& layer, int micro_batch, parallel::Pass pass);
  Tokens tokens(const parallel::Layer& layer, int micro_batch, std::int64_t step) const;
  Tokens tokens_on_device(const parallel::Layer& layer, int micro_batch, std::int64_t step) const;
  // Sends the next step's tokens to the device, which is still at work on this one.
  void read_ahead();
  // The number, over the whole run, of a layer's first sample.
  std::int64_t first_sample(const parallel::Layer& layer, int micro_batch, std::int64_t step) const;
  double counted_predictions() const;
  void update();
  void update_unseen(const at::Tensor& loss, const at::Tensor& squares);
  void look_at(const at::Tensor& loss, const at::Tensor& squares);

  Plan plan_;
  comm::Group& world_;
  WorkerOptions options_;
  SampleSource samples_;
  parallel::Groups groups_;
  models::RankModel model_;
  std::unique_ptr<parallel::Stage> stage_;
  OpList list_;
  std::vector<parallel::FlatBuffer*> buffers_;

  using Ahead = std::map<std::pair<const parallel::Layer*, int>, Tokens>;  // by micro-batch too
  Ahead ahead_;
  std::int64_t ahead_step_ = -1;

  std::int64_t step_ = 0;
  double learning_rate_ = 0, loss_scale_ = 1;
  StepResult result_;
};

}  // namespace braid::train
