#include "runtime/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "planner/core/error.h"
#include "planner/explain/summary.h"
#include "planner/simulate/predicted_terms.h"
#include "runtime/checkpoint/huggingface.h"
#include "runtime/checkpoint/load.h"
#include "runtime/parallel/collectives.h"
#include "runtime/parallel/recorder.h"
#include "runtime/train/agreement.h"
#include "runtime/train/metrics.h"
#include "runtime/train/objective.h"
#include "runtime/train/step_trace.h"
#include "runtime/train/worker.h"

namespace braid::train {

namespace {

std::vector<Identity> identities(const Plan& plan, const TrainOptions& o,
                                 const std::optional<checkpoint::Checkpoint>& weights) {
  const LearningRate& rate = o.learning_rate;
  return {
      {"plan", plan_text(plan), "give every rank the same plan file"},
      {"options",
       fmt::format("{} {} {} {} {} {} {} {} {} | {} {} {} {} {} {} | {} {} {} {} {}", o.steps,
                   static_cast<int>(o.precision), o.seed, o.clip, o.dropout, o.adamw.beta1,
                   o.adamw.beta2, o.adamw.epsilon, o.adamw.weight_decay, name_of(rate), rate.peak,
                   rate.minimum, rate.warmup_steps, rate.decay_steps, rate.total_steps,
                   o.recorded_steps, !o.trace.empty(), o.mask_token.value_or(-1),
                   !o.weights.empty(), o.check_replicas),
       "start every rank with the same flags"},
      {"data", fmt::format("{} {} {}", o.data->samples(), o.data->vocabulary(), o.data->content()),
       "give every rank the same data"},
      {"first weights", weights ? weights->content() : "",
       "give every rank the same checkpoint: look at the file's copies on all nodes"}};
}

ObjectiveOptions objective_options(const TrainOptions& options) {
  return {.seed = options.seed, .mask_token = options.mask_token};
}

// The mean peak of a device; none in fp64, of which a cluster's description says nothing.
std::optional<FlopsPerSecond> device_peak(const Plan& plan, const parallel::Numerics& numerics) {
  if (numerics.compute == at::kDouble) return std::nullopt;
  const Precision precision = numerics.compute == at::kFloat ? Precision::fp32
                              : numerics.fp8                 ? Precision::fp8
                                                             : Precision::bf16;
  return cluster_peak(plan.cluster, precision) / static_cast<double>(plan.cluster.num_devices());
}

// Which steps are recorded (TrainOptions::recorded_steps), and their records.
class Recording {
 public:
  Recording(const TrainOptions& options, std::int64_t first_step)
      : device_(options.device),
        second_(first_step + 1),
        last_(planned(options, first_step)),
        first_last_(options.steps - last_) {}

  // Null: this step is not recorded. Asked once for each step, in their order.
  parallel::Recorder* of_step(std::int64_t step) {
    if (step >= first_last_) {
      if (taken_++ == 0) recorder_.emplace(device_);
      return &*recorder_;
    }
    if (step != second_ || last_ == 0) return nullptr;
    return &recorder_.emplace(device_);
  }
  std::int64_t last_steps() const { return taken_; }  // recorded ones at the end of the run
  std::vector<parallel::StepRecord> records() {
    return recorder_ ? recorder_->steps() : std::vector<parallel::StepRecord>{};
  }

 private:
  static std::int64_t planned(const TrainOptions& options, std::int64_t first_step) {
    const std::int64_t others = options.steps - first_step - 1;
    if (others < 1) return 0;
    return std::min(options.recorded_steps, std::max<std::int64_t>(1, others / 2));
  }

  at::Device device_;
  std::int64_t second_;             // the second step of this start
  std::int64_t last_, first_last_;  // steps at the end to record, and the first of them
  std::int64_t taken_ = 0;
  std::optional<parallel::Recorder> recorder_;
};

// After a step in which some rank was asked to stop: the highest signal of all ranks.
int agreed_signal(const TrainOptions& options, comm::Group& world) {
  const std::vector<std::int64_t> signals = parallel::gather_words(
      options.stop_signal ? options.stop_signal() : 0, world, options.device, "signals");
  return static_cast<int>(std::ranges::max(signals));
}

// Of the steps that count: neither the first nor recorded, or the best that there is.
Seconds median(const std::vector<Seconds>& steps, std::int64_t recorded) {
  if (steps.empty()) return Seconds(0);
  const std::int64_t plain = std::ssize(steps) - recorded;
  std::vector<Seconds> times(steps.begin() + (steps.size() > 1 ? 1 : 0),
                             plain > 1 ? steps.begin() + plain : steps.end());
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::ranges::nth_element(times, middle);
  return *middle;
}

// What rank 0 says of the steps.
class Log {
 public:
  Log(const Plan& plan, const TrainOptions& options, std::int64_t first_step, bool speaks) {
    if (!speaks) return;
    on_trouble_ = options.on_trouble;
    on_warning_ = options.on_warning;
    if (!options.metrics.empty())
      metrics_.emplace(MetricsOptions{.folder = options.metrics,
                                      .resumes = options.save.resume,
                                      .first_step = first_step,
                                      .tensorboard = options.tensorboard});
    ProgressOptions progress = options.progress;
    progress.total_steps = options.steps;
    if (options.progress_to != nullptr) progress_.emplace(options.progress_to, progress);
    if (plan.prediction.iteration > Seconds(0)) predicted_seconds_ = plan.prediction.iteration;
    for (const StagePrediction& stage : plan.prediction.stages)
      predicted_ = std::max(predicted_, std::optional(stage.allocated()));
  }

  void step(StepMetrics metrics) {
    metrics.predicted_seconds = predicted_seconds_;
    if (metrics.allocated) metrics.predicted = predicted_;
    if (metrics_)
      for (const Mistake& trouble : metrics_->write(metrics))
        if (on_trouble_) on_trouble_(trouble);
    if (progress_) progress_->step(metrics);
    warn_of_no_gradients(metrics);
  }

  std::vector<Mistake> incomplete() const {
    return metrics_ ? metrics_->incomplete() : std::vector<Mistake>{};
  }

 private:
  // Once, after the first steps: a model that gets no gradients trains nothing.
  void warn_of_no_gradients(const StepMetrics& metrics) {
    constexpr std::int64_t kSteps = 3;
    constexpr double kShownAsNothing = 0.005;  // 0.00 in a line of progress
    if (metrics.gradient_norm < kShownAsNothing) ++without_gradients_;
    if (metrics.step + 1 != kSteps || without_gradients_ < kSteps || !on_warning_) return;
    on_warning_(fmt::format(
        "warning: the gradient norm was below {} in each of the first {} steps: nothing is "
        "learned. Look at the model's init_std (initializer_range), its scales and the data",
        kShownAsNothing, kSteps));
  }

  std::function<void(const Mistake&)> on_trouble_;
  std::function<void(const std::string&)> on_warning_;
  std::int64_t without_gradients_ = 0;
  std::optional<MetricsWriter> metrics_;
  std::optional<Progress> progress_;
  std::optional<Seconds> predicted_seconds_;
  std::optional<Bytes> predicted_;
};

// The fullest device's peak moves little once two steps are done: asking all ranks is rare.
bool asks_for_memory(std::int64_t step, std::int64_t first_step) {
  return step < first_step + 2 || step % 100 == 0;
}

RunFacts facts_of(const Plan& plan, const TrainOptions& o) {
  const LearningRate& rate = o.learning_rate;
  const auto number = [](double value) { return fmt::format("{}", value); };
  return {.program = o.program,
          .identity = {{"seed", fmt::format("{}", o.seed)},
                       {"data", o.data->content()},
                       {"samples of the data", fmt::format("{}", o.data->samples())},
                       {"mask_token", o.mask_token ? fmt::format("{}", *o.mask_token) : "none"}},
          .settings = {{"global_batch", fmt::format("{}", plan.global_batch)},
                       {"learning_rate.schedule", name_of(rate)},
                       {"learning_rate.peak", number(rate.peak)},
                       {"learning_rate.minimum", number(rate.minimum)},
                       {"learning_rate.warmup_steps", fmt::format("{}", rate.warmup_steps)},
                       {"learning_rate.decay_steps", fmt::format("{}", rate.decay_steps)},
                       // A constant rate knows no end.
                       {"learning_rate.total_steps", rate.kind == LearningRateKind::constant
                                                         ? "any"
                                                         : fmt::format("{}", rate.total_steps)},
                       {"adamw.beta1", number(o.adamw.beta1)},
                       {"adamw.beta2", number(o.adamw.beta2)},
                       {"adamw.epsilon", number(o.adamw.epsilon)},
                       {"adamw.weight_decay", number(o.adamw.weight_decay)},
                       {"clip", number(o.clip)},
                       {"dropout", number(o.dropout)}}};
}

// The checkpoint that a run goes on from, and what it says.
struct Origin {
  std::optional<checkpoint::TensorFiles> files;  // empty: the run begins
  RunPosition position;
};

Origin find_origin(const Plan& plan, const TrainOptions& options, const RunFacts& facts,
                   comm::Group& world) {
  Origin origin;
  if (!options.save.saves()) return origin;
  const auto folder = newest_checkpoint(options.save, world, options.device);
  if (!folder) return origin;
  origin.files.emplace(*folder);
  const checkpoint::Manifest& manifest = *origin.files->manifest();
  const std::vector<std::string> changed =
      expect_same_run(manifest, plan.model, facts, folder->string());
  origin.position = {.step = manifest.step, .samples = manifest.samples};
  if (world.rank() == 0 && options.on_resume) options.on_resume(*folder, changed);
  return origin;
}

std::optional<Bytes> fullest(const std::vector<HeldMemory>& ranks) {
  return std::ranges::max_element(ranks, {}, &HeldMemory::allocated)->allocated;
}

}  // namespace

parallel::Numerics numerics_for(const Plan& plan, RunPrecision precision, at::Device device) {
  switch (precision) {
    case RunPrecision::plan:
      return parallel::numerics_of(plan.precision, plan.gradient_precision, device);
    case RunPrecision::fp64:
      return parallel::fp64_numerics(device);
    case RunPrecision::fp32:
      return parallel::numerics_of(Precision::fp32, Precision::fp32, device);
    case RunPrecision::bf16:
      return parallel::numerics_of(Precision::bf16, plan.gradient_precision, device);
    case RunPrecision::fp8:
      return parallel::numerics_of(Precision::fp8, plan.gradient_precision, device);
  }
  internal_failure("unknown precision", std::source_location::current());
}

TrainReport train(const Plan& plan, comm::Group& world, const TrainOptions& options) {
  const at::NoGradGuard no_grad;
  internal_check(options.data != nullptr, "training needs data");
  std::optional<checkpoint::Checkpoint> weights;
  if (!options.weights.empty()) weights.emplace(options.weights);
  expect_agreement(identities(plan, options, weights), world, options.device);
  require_fitting(plan.model, *options.data, objective_options(options));
  std::optional<checkpoint::RunClaim> claim;
  if (options.save.saves() && world.rank() == 0) claim.emplace(options.save.folder);
  const RunFacts facts = facts_of(plan, options);
  Origin origin = find_origin(plan, options, facts, world);
  const RunPosition start = origin.position;
  const parallel::Numerics numerics = numerics_for(plan, options.precision, options.device);
  Log log(plan, options, start.step, world.rank() == 0);
  std::optional<Saving> saving;
  WorkerOptions settings;
  settings.numerics = numerics;
  settings.seed = options.seed;
  settings.adamw = options.adamw;
  settings.clip = options.clip;
  settings.model.dropout = options.dropout;
  settings.capture = options.capture;
  settings.first_step = start.step;
  settings.first_sample = start.samples;
  if (options.stop_signal) settings.stop = [&] { return options.stop_signal() != 0; };
  if (options.save.saves()) {
    settings.save = [&] { return saving && saving->is_time(); };
    settings.before_change = [&] {
      if (saving) saving->hold_back_changes();
    };
  }
  Worker worker(plan, world, settings,
                sample_source(plan.model, options.data, objective_options(options)));

  if (origin.files) {
    checkpoint::load_state(worker.model(), plan.model, *origin.files);
    origin.files.reset();
  } else if (weights) {
    weights->expect_accounted(plan.model);
    checkpoint::load_huggingface(worker.model(), plan.model, *weights);
  }
  if (start.step > 0 || weights) {
    worker.weights_changed();
    expect_equal_replicas(worker.model(), world, options.device, "the first weights");
  }
  weights.reset();
  if (options.save.saves())
    saving.emplace(options.save, plan, facts, start, worker.model(), world, options.device,
                   options.on_saved);
  if (world.rank() == 0 && options.on_start) options.on_start();

  const Flops step_flops = training_flops(plan.model) * static_cast<double>(plan.global_batch);
  const int devices = plan.cluster.num_devices();
  const std::optional<FlopsPerSecond> peak = device_peak(plan, numerics);
  TrainReport report;
  report.first_step = start.step;
  Recording recording(options, start.step);
  std::optional<Bytes> allocated;
  std::optional<Mistake> unsaved;  // why the last save failed
  for (std::int64_t step = start.step; step < options.steps && report.stopped_by == 0; ++step) {
    parallel::Recorder* recorder = recording.of_step(step);
    if (recorder != nullptr) world.barrier("recorded step");  // one clock for all ranks
    const auto begin = std::chrono::steady_clock::now();
    const double rate = options.learning_rate.at(step);
    if (recorder != nullptr) recorder->begin_step();
    const StepResult result = worker.step(step, rate);
    if (recorder != nullptr) recorder->end_step();
    const Seconds seconds(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    report.steps.push_back(seconds);
    report.losses.push_back(result.loss);
    if (options.device.is_cuda() && asks_for_memory(step, start.step))
      allocated = fullest(gather_held(held_by(worker, options.device), options.device, world));
    const bool last = step + 1 == options.steps;
    std::vector<checkpoint::Saved> saved;
    if (saving)
      saved = saving->after_step(
          {.step = step + 1,
           .samples = start.samples + (step + 1 - start.step) * plan.global_batch},
          result.saving, last || result.stopping);
    if (!saved.empty()) unsaved = saved.back().trouble;
    log.step({.step = step,
              .loss = result.loss,
              .gradient_norm = result.gradient_norm,
              .learning_rate = rate,
              .tokens = plan.global_batch * plan.model.sequence,
              .seconds = seconds,
              .launch = result.launch,
              .mfu = model_flops_utilisation(step_flops, seconds, devices, peak),
              .allocated = allocated,
              .saved = saved});
    if (options.check_replicas > 0 && (step + 1) % options.check_replicas == 0)
      expect_equal_replicas(worker.model(), world, options.device,
                            fmt::format("the weights after step {}", step + 1));
    if (result.stopping && !last) report.stopped_by = agreed_signal(options, world);
  }
  report.step = median(report.steps, recording.last_steps());
  report.mfu = model_flops_utilisation(step_flops, report.step, devices, peak);
  report.stages =
      largest_of_stages(gather_held(held_by(worker, options.device), options.device, world), plan);
  const std::vector<parallel::StepRecord> records = recording.records();
  if (!records.empty()) report.terms = gather_terms(records, plan, options.device, world);
  report.unwritten = log.incomplete();
  if (unsaved && world.rank() == 0) report.unwritten.push_back(*unsaved);
  if (saving) report.save_stall = saving->stall();
  if (!options.trace.empty()) {
    try {
      write_trace(options.trace, records, plan, options.device, world);
    } catch (const comm::CommError&) {
      throw;
    } catch (const Error& error) {
      report.unwritten.push_back(error.mistake());
    }
  }
  return report;
}

RunReport run_report(const Plan& plan, const TrainReport& report) {
  RunReport result{.plan = plan,
                   .step = report.step,
                   .steps = report.steps,
                   .mfu = report.mfu,
                   .losses = report.losses,
                   .stages = {}};
  std::vector<StepTerms> predicted;
  if (is_priced(plan)) predicted = predicted_terms(plan);
  for (std::size_t stage = 0; stage < report.stages.size(); ++stage) {
    StageReport one{.held = report.stages[stage], .measured = {}, .predicted = {}};
    if (!report.terms.empty()) one.measured = report.terms[stage];
    if (!predicted.empty()) one.predicted = predicted[stage];
    result.stages.push_back(one);
  }
  return result;
}

}  // namespace braid::train
