// braid train: runs a plan.

#include "cli/train.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <utility>

#include "cli/common.h"
#include "cli/reprice.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "planner/core/error.h"
#include "planner/core/text.h"
#include "runtime/models/model.h"
#include "runtime/train/metrics.h"

namespace braid::cli {
namespace {

constexpr double kLargest = 1e300;

double read_number(const std::string& text, const std::string& flag, double low, double high) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool all = end == text.data() + text.size() && !text.empty();
  if (status == std::errc() && all && number >= low && number <= high) return number;
  const bool is_number = all && status != std::errc::invalid_argument && !std::isnan(number);
  throw Error({.what = is_number ? fmt::format("{} is out of range", text)
                                 : fmt::format("'{}' is not a number", text),
               .where = flag,
               .fix = fmt::format("write a number from {:g} to {:g}", low, high)});
}

train::LearningRate read_rate(const TrainFlags& flags, std::int64_t steps) {
  train::LearningRate rate = train::parse_learning_rate(flags.schedule, "--lr-schedule");
  rate.peak = read_number(flags.rate, "--lr", 0, kLargest);
  rate.minimum = read_number(flags.minimum, "--min-lr", 0, kLargest);
  rate.warmup_steps = *read_count(flags.warmup, "--lr-warmup", limits::kCount.or_zero());
  rate.total_steps = steps;
  const bool decays = rate.kind == train::LearningRateKind::wsd;
  if (!flags.decay.empty() && !decays)
    throw Error({.what = fmt::format("the schedule '{}' has no decay to choose the length of",
                                     flags.schedule),
                 .where = "--lr-decay",
                 .fix = "leave it out, or choose --lr-schedule wsd"});
  if (decays)
    rate.decay_steps =
        read_count(flags.decay, "--lr-decay", limits::kCount.or_zero()).value_or(steps / 10);
  train::check(rate, "--lr, --min-lr, --lr-warmup, --lr-decay, --steps");
  return rate;
}

train::SaveOptions read_saving(const TrainFlags& flags) {
  train::SaveOptions save;
  save.folder = flags.save;
  save.resume = flags.resume;
  save.every_steps = read_count(flags.save_every, "--save-every").value_or(0);
  if (!flags.save_minutes.empty())
    save.every = Seconds(60 * read_number(flags.save_minutes, "--save-minutes", 1e-3, 1e6));
  save.keep.last = read_count(flags.keep, "--keep").value_or(0);
  save.keep.every = read_count(flags.keep_every, "--keep-every").value_or(0);
  if (!flags.on_save_error.empty())
    save.stop_on_error =
        read_choice(flags.on_save_error, "--on-save-error", {"continue", "stop"}) == 1;
  if (save.saves()) {
    train::expect_savable(save);
    return save;
  }
  for (const auto& [flag, given] :
       {std::pair("--resume", flags.resume), std::pair("--save-every", !flags.save_every.empty()),
        std::pair("--save-minutes", !flags.save_minutes.empty()),
        std::pair("--keep", !flags.keep.empty()),
        std::pair("--keep-every", !flags.keep_every.empty()),
        std::pair("--on-save-error", !flags.on_save_error.empty())})
    if (given)
      throw Error({.what = "there is no folder for checkpoints",
                   .where = flag,
                   .fix = "add --save FOLDER"});
  return save;
}

}  // namespace

train::TrainOptions read_training(const TrainFlags& flags) {
  train::TrainOptions options;
  options.steps = *read_count(flags.steps, "--steps");
  options.precision = static_cast<train::RunPrecision>(
      read_choice(flags.precision, "--precision", {"plan", "fp64", "fp32", "bf16", "fp8"}));
  options.seed =
      static_cast<std::uint64_t>(*read_count(flags.seed, "--seed", limits::kCount.or_zero()));
  // At a beta of 1 a moment would never leave its zero.
  const double below_one = std::nextafter(1.0, 0.0);
  options.adamw.beta1 = read_number(flags.beta1, "--beta1", 0, below_one);
  options.adamw.beta2 = read_number(flags.beta2, "--beta2", 0, below_one);
  options.adamw.weight_decay = read_number(flags.weight_decay, "--weight-decay", 0, kLargest);
  options.clip = read_number(flags.clip, "--clip", 0, kLargest);
  options.dropout = read_number(flags.dropout, "--dropout", 0, below_one);
  options.learning_rate = read_rate(flags, options.steps);
  options.mask_token = read_count(flags.mask_token, "--mask-token", limits::kCount.or_zero());
  options.weights = flags.weights;
  options.capture = !flags.no_capture;
  options.metrics = flags.metrics;
  options.save = read_saving(flags);
  options.program = fmt::format("braid {}", kVersion);
  if (!flags.metrics.empty()) {
    if (!flags.resume) train::expect_new_run(flags.metrics);
    train::expect_writable_folder(flags.metrics);
  }
  options.tensorboard = flags.tensorboard;
  if (flags.tensorboard && flags.metrics.empty())
    throw Error({.what = "there is no folder for TensorBoard's file",
                 .where = "--tensorboard",
                 .fix = "add --metrics FOLDER"});
  options.trace = flags.trace;
  if (!flags.trace.empty() && options.steps < 2)
    throw Error({.what = "the first step warms up and is never recorded",
                 .where = "--trace",
                 .fix = "take --steps 2 or more"});
  options.check_replicas = read_count(flags.check_replicas, "--check-replicas").value_or(0);
  options.progress.every_steps = read_count(flags.log_every, "--log-every").value_or(0);
  read_format(flags.format);  // a mistake in it is told before the ranks start
  if (!flags.out.empty()) expect_writable(flags.out, "--out");
  if (!flags.trace.empty()) expect_writable(flags.trace, "--trace");
  return options;
}

namespace {

int prepare_and_run(const TrainFlags& flags, const std::optional<comm::Launch>& launch) {
  train::TrainOptions options = read_training(flags);
  const Plan plan = read_priced(flags.plan);  // reading verifies
  models::require_supported(plan.model);
  if (flags.dry_run) return launch && launch->rank > 0 ? kOk : run_dry(plan, flags, options);
  const Place place = choose_place(flags.world, launch, plan.cluster.num_devices());
  if (!starts_together(place))
    options.data = open_data(flags.data, plan.model, options.seed, options.mask_token);
  return run_ranks(plan, flags, place, std::move(options));
}

}  // namespace

void add_training_flags(const Verb& verb, TrainFlags& flags) {
  const Options option(verb);
  option("--steps", flags.steps, "N", "steps to train (default 100)");
  option("--data", flags.data, "NAME",
         "synthetic (default), text:FILE (bytes are tokens), lines:FILE (one sample a line), "
         "megatron:PREFIX or images:FILE");
  option("--mask-token", flags.mask_token, "ID",
         "what stands for a hidden token (default the first id that the data leaves free), or for "
         "T5's first span (default the last id)");
  option("--seed", flags.seed, "N",
         "seed of weights, dropout and the order of samples (default 1)");
  option("--weights", flags.weights, "PATH",
         "begin with these weights: a Hugging Face safetensors file, a folder of them, or a "
         "checkpoint of a run");
  verb.flag("--no-capture", flags.no_capture,
            "on a GPU, launch every operator of every step, not the steady step at once");

  option("--lr", flags.rate, "X", "the learning rate's peak (default 3e-4)");
  option("--lr-schedule", flags.schedule, "NAME", "constant (default), cosine, wsd or wsd:1-sqrt");
  option("--lr-warmup", flags.warmup, "N", "steps of warm-up (default 0)");
  option("--lr-decay", flags.decay, "N", "steps of wsd's decay (default a tenth of all)");
  option("--min-lr", flags.minimum, "X", "where the schedule ends (default 0)");
  option("--clip", flags.clip, "X", "limit of the gradient's norm; 0: none (default 1)");
  option("--weight-decay", flags.weight_decay, "X", "AdamW's (default 0.1)");
  option("--beta1", flags.beta1, "X", "AdamW's (default 0.9)");
  option("--beta2", flags.beta2, "X", "AdamW's (default 0.95)");
  option("--dropout", flags.dropout, "P", "of what a sub-layer adds (default 0)");

  option("--save", flags.save, "FOLDER",
         "keep checkpoints there: at the end, when the run is interrupted, and as often as asked");
  option("--save-every", flags.save_every, "N", "save every N steps");
  option("--save-minutes", flags.save_minutes, "M", "save every M minutes");
  option("--keep", flags.keep, "N", "keep the newest N checkpoints (default: all)");
  option("--keep-every", flags.keep_every, "N",
         "keep those of every N-th step besides the newest of --keep");
  option("--on-save-error", flags.on_save_error, "NAME",
         "what a save that fails does to the run: continue (default) or stop");
  verb.flag("--resume", flags.resume,
            "go on from the newest checkpoint in the folder of --save, or begin where there is "
            "none; under any plan of the model");

  option("--check-replicas", flags.check_replicas, "N",
         "every N steps, compare the weights of ranks that hold the same ones (default: never)");

  option("--metrics", flags.metrics, "FOLDER", "write metrics.jsonl and report.json there");
  verb.flag("--tensorboard", flags.tensorboard,
            "write TensorBoard's event file to the folder of --metrics too");
  option("--log-every", flags.log_every, "N", "a line every N steps, besides one every 10 s");
  option("--format", flags.format, "NAME",
         "the closing tables as text (default) or json; with json progress goes to standard error");
  option("--out", flags.out, "FILE", "write the closing tables there, as JSON");
  option("--trace", flags.trace, "FILE",
         "write a timeline of the last steps, for Perfetto or chrome://tracing");
}

void add_train(const Verb& app, Run& run) {
  const auto flags = std::make_shared<TrainFlags>();
  const Verb verb = app.add("train", "run a plan");
  const Options option(verb);
  option("plan,--plan", flags->plan, "FILE", "a plan that 'braid plan --out' wrote").required();
  option("--precision", flags->precision, "NAME", "plan (default), fp64, fp32, bf16 or fp8");
  add_training_flags(verb, *flags);
  verb.flag("--dry-run", flags->dry_run,
            "train nothing: play a step without memory, and show what each stage would hold");
  add_world_flags(option, flags->world, "must be the plan's number of devices");
  verb.examples({"braid train plan.json --steps 100 --metrics run1",
                 "mpirun -n 4 braid train plan.json --data text:book.txt",
                 "torchrun --no-python --nproc-per-node 8 braid train plan.json",
                 "braid train plan.json --dry-run"});
  verb.when_chosen([flags, &run] {
    run = [flags] {
      return launched([&](const std::optional<comm::Launch>& launch) {
        return prepare_and_run(*flags, launch);
      });
    };
  });
}

}  // namespace braid::cli
