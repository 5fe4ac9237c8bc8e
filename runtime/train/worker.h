#pragma once
// One rank of a training run: builds its share of the plan and takes steps.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "planner/plan/plan.h"
#include "planner/simulate/schedule.h"
#include "runtime/models/model.h"
#include "runtime/parallel/stage.h"
#include "runtime/train/adamw.h"
#include "runtime/train/captured_step.h"
#include "runtime/train/sample_source.h"
#include "runtime/train/step_inputs.h"

namespace braid::train {

struct WorkerOptions {
  parallel::Numerics numerics;
  std::uint64_t seed = 1;
  AdamW adamw;
  double clip = 1.0;  // of the gradient's norm; 0: none
  models::ModelOptions model;
  std::function<void()> before_update = {};  // gradients are complete and not yet used
  parallel::Watch watch = {};
  bool capture = true;  // on a GPU: the steady step as one launch, where that can be
  // Whether this rank is asked to end the run, and whether it asks for a save; empty: never. Read
  // once a step, from this thread.
  std::function<bool()> stop = {};
  std::function<bool()> save = {};
  // Runs ahead of every change of weights and moments; where a step is captured, once for all of
  // its replays. Empty: none.
  std::function<void()> before_change = {};
  // The first step that is taken, and the samples that those before it consumed.
  std::int64_t first_step = 0, first_sample = 0;
};

struct StepResult {
  double loss = 0;  // mean over the global batch's tokens
  double gradient_norm = 0;
  // Some rank's WorkerOptions::stop, or save, was true; the same on all ranks.
  bool stopping = false, saving = false;
  // Until all of the step was handed to a device that was still at work; else nothing.
  std::optional<Seconds> launch = {};
};

class Worker {
 public:
  // Throws Error unless the world has as many ranks as the plan devices. Collective.
  Worker(const Plan& plan, comm::Group& world, WorkerOptions options, SampleSource samples);

  // Step numbers count from 0. Every rank returns the same.
  StepResult step(std::int64_t number, double learning_rate);

  models::RankModel& model() { return model_; }
  const parallel::Stage& stage() const { return *stage_; }
  const CapturedStep& captured() const { return captured_; }
  // Copies tied weights to where they are used; after parameters were set from outside.
  void weights_changed();

 private:
  parallel::Feed feed(const parallel::Layer& layer, int micro_batch, parallel::Pass pass);
  double counted_predictions() const;
  // Of all tokens that the stage's layers read in a step.
  void read_tokens(std::int64_t step);
  // Why a step may launch other work than the one before; empty: it never does.
  std::string why_launches_differ() const;
  void play();
  void abandon();
  void update();
  void update_unseen();
  void look_at_result();

  Plan plan_;
  comm::Group& world_;
  WorkerOptions options_;
  SampleSource samples_;
  parallel::Groups groups_;
  models::RankModel model_;
  std::unique_ptr<parallel::Stage> stage_;
  OpList list_;
  std::vector<parallel::FlatBuffer*> buffers_;

  StepInputs inputs_;
  CapturedStep captured_;

  std::int64_t step_ = 0;
  double learning_rate_ = 0, loss_scale_ = 1;
  // On the device, fp64, summed over ranks in the last step: [loss, ranks that are asked to stop,
  // ranks that ask for a save]; its first element; the squares of gradients. And what of AdamW
  // changes with the step.
  at::Tensor sums_, loss_, squares_, pace_;
  bool unseen_ = false;  // the last update was launched before the host saw loss and norm
  StepResult result_;
};

}  // namespace braid::train
