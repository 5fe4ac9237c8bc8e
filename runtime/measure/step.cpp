#include "runtime/measure/step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "runtime/measure/bench.h"
#include "runtime/measure/stopped.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/random.h"
#include "runtime/ops/timed.h"
#include "runtime/train/worker.h"

namespace braid::measure {

namespace {

using Clock = std::chrono::steady_clock;

// All layers on the one device.
Plan plan_of(const Model& model, const StepOptions& options) {
  Plan plan;
  plan.model = model;
  plan.cluster.device_types.emplace_back();
  plan.cluster.groups.push_back({.count = 1, .device_type = 0, .devices = 1, .inside = {}});
  plan.global_batch = options.batch;
  plan.precision = options.precision;
  plan.gradient_precision = options.gradients;
  plan.shape.micro_batches = options.micro_batches;
  Strategy block;
  block.recompute = options.recompute;
  StagePlan stage;
  stage.chunks = {{0, model.num_layers()}};
  stage.strategies.assign(static_cast<std::size_t>(model.num_layers()), block);
  stage.strategies.front() = stage.strategies.back() = Strategy{};
  plan.stages.push_back(std::move(stage));
  return plan;
}

// Draws numbers from a sample's index (Knuth's 64-bit linear congruential generator, its upper
// bits).
class Draw {
 public:
  explicit Draw(std::int64_t sample) : state_(static_cast<std::uint64_t>(sample) + 1) {}
  std::int64_t below(std::int64_t limit) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::int64_t>((state_ >> 33) % static_cast<std::uint64_t>(limit));
  }

 private:
  std::uint64_t state_;
};

// Random tokens or random patches with random labels: every label counts.
train::SampleSource random_samples(const Model& model) {
  const std::int64_t classes = model.type_of(model.num_layers() - 1).shape.vocab;
  const LayerShape& embedding = model.type_of(0).shape;
  train::SampleSource source;
  if (embedding.patch_inputs > 0) {
    source.image = [classes](std::int64_t sample, std::span<std::uint8_t> patches) {
      Draw draw(sample);
      const std::int64_t label = draw.below(classes);
      for (std::uint8_t& value : patches) value = static_cast<std::uint8_t>(draw.below(256));
      return label;
    };
    return source;
  }
  source.read = [classes, vocabulary = embedding.vocab](std::int64_t sample,
                                                        std::span<std::int64_t> inputs,
                                                        std::span<std::int64_t> labels) {
    Draw draw(sample);
    for (std::int64_t& token : inputs) token = draw.below(vocabulary);
    for (std::int64_t& token : labels) token = draw.below(classes);
  };
  return source;
}

// Operators again, without what is between them in a step.
class Alone {
 public:
  Alone(at::Device device, at::ScalarType type)
      : device_(device), options_(at::TensorOptions(device).dtype(type)) {}

  double product(const std::vector<std::int64_t>& shape, std::string_view name) const {
    const std::int64_t rows = shape[0], out = shape[1], in = shape[2];
    const at::Tensor weight = at::randn({out, in}, options_);
    const at::Tensor x = at::randn({rows, in}, options_), dy = at::randn({rows, out}, options_);
    if (name == ops::kForwardProduct) return seconds([&] { at::mm(x, weight.t()); });
    if (name == ops::kInputProduct) return seconds([&] { at::mm(dy, weight); });
    return seconds([&] { at::mm(dy.t(), x); });
  }

  double attention(const std::vector<std::int64_t>& s, bool backward) const {
    const at::Tensor q = at::randn({s[0], s[1], s[2], s[4]}, options_);
    const at::Tensor k = at::randn({s[5], s[1], s[3], s[4]}, options_);
    const at::Tensor v = at::randn(k.sizes(), options_), dout = at::randn(q.sizes(), options_);
    const ops::Visibility see{.causal = s[6] != 0};
    constexpr double kScale = 0.125;
    if (!backward) return seconds([&] { ops::attention(q, k, v, kScale, see); });
    const ops::Attended made = ops::attention(q, k, v, kScale, see);
    return seconds(
        [&] { ops::attention_backward(dout, q, k, v, made.out, made.lse, kScale, see); });
  }

  // Of one byte that is read or written.
  double memory() const {
    const std::int64_t elements = (device_.is_cuda() ? std::int64_t{1} << 30 : 1 << 26) / 4;
    const at::TensorOptions floats = options_.dtype(at::kFloat);
    const at::Tensor from = at::randn({elements}, floats);
    const at::Tensor to = at::empty({elements}, floats);
    return seconds([&] { to.copy_(from); }) / (8.0 * static_cast<double>(elements));
  }

 private:
  template <class Body>
  double seconds(const Body& body) const {
    const int warm_up = device_.is_cuda() ? 3 : 1, times = device_.is_cuda() ? 10 : 2;
    for (int i = 0; i < warm_up; ++i) body();
    const ops::Mark begin = ops::Mark::now(device_);
    for (int i = 0; i < times; ++i) body();
    const ops::Mark end = ops::Mark::now(device_);
    ops::synchronise(device_);
    return end.since(begin) / times;
  }

  at::Device device_;
  at::TensorOptions options_;
};

bool is_product(std::string_view name) {
  return name == ops::kForwardProduct || name == ops::kInputProduct || name == ops::kWeightProduct;
}

StepLimit limit_of(const std::vector<ops::TimedRange>& ranges, double parameters,
                   const Alone& alone) {
  std::map<std::pair<std::string_view, std::vector<std::int64_t>>, int> work;
  for (const ops::TimedRange& range : ranges) ++work[{range.name, range.shape}];
  StepLimit limit;
  for (const auto& [what, times] : work) {
    const auto& [name, shape] = what;
    if (is_product(name)) limit.products += times * alone.product(shape, name);
    if (name == ops::kAttention || name == ops::kAttentionBackward)
      limit.attention += times * alone.attention(shape, name == ops::kAttentionBackward);
  }
  limit.optimizer = parameters * kUpdateBytes * alone.memory();
  return limit;
}

std::vector<OperatorTime> by_operator(const std::vector<ops::TimedRange>& ranges) {
  std::map<std::string_view, OperatorTime> sums;
  for (const ops::TimedRange& range : ranges) {
    OperatorTime& sum = sums[range.name];
    ++sum.calls;
    sum.seconds += range.seconds;
  }
  std::vector<OperatorTime> sorted;
  for (auto& [name, sum] : sums) {
    sum.name = name;
    sorted.push_back(sum);
  }
  std::ranges::sort(sorted, std::ranges::greater{}, &OperatorTime::seconds);
  return sorted;
}

std::string steps_text(const std::vector<double>& seconds, int planned) {
  if (seconds.empty()) return "no step that counts was done";
  return fmt::format("{} of {} steps were done, with a median of {:.1f} ms", seconds.size(),
                     planned, robust(seconds).seconds * 1e3);
}

}  // namespace

StepTimes time_step(const Model& model, comm::Group& world, at::Device device,
                    const StepOptions& options) {
  const at::NoGradGuard no_grad;
  train::WorkerOptions settings;
  settings.numerics = parallel::numerics_of(options.precision, options.gradients, device);
  settings.capture = options.capture;
  StepTimes times;
  std::vector<ops::TimedRange> ranges;
  {
    train::Worker worker(plan_of(model, options), world, settings, random_samples(model));
    std::int64_t number = 0;
    std::vector<double> seconds;
    seconds.reserve(static_cast<std::size_t>(options.steps));
    const auto step = [&] {
      if (const int signal = options.stop_signal ? options.stop_signal() : 0; signal != 0)
        throw Stopped(signal, steps_text(seconds, options.steps));
      const auto begin = Clock::now();
      times.losses.push_back(worker.step(number++, 1e-4).loss);
      ops::synchronise(device);
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    // The peak of all steps: replayed ones take no memory anew.
    ops::reset_peak(device);
    for (int i = 0; i < options.warm_up; ++i) step();
    for (int i = 0; i < options.steps; ++i) seconds.push_back(step());
    times.peak = ops::peak_allocated(device);
    times.fastest = *std::ranges::min_element(seconds);
    times.slowest = *std::ranges::max_element(seconds);
    times.seconds = robust(seconds).seconds;
    // Marks between operators cost time themselves, so that these steps are others than those
    // above.
    ops::Timings timings(device);
    times.timed_seconds = step();
    ranges = timings.ranges();
  }
  ops::release_cached(device);
  times.operators = by_operator(ranges);
  times.flops = training_flops(model).value() * static_cast<double>(options.batch);
  times.limit = limit_of(ranges, static_cast<double>(parameters(model)),
                         Alone(device, settings.numerics.compute));
  return times;
}

}  // namespace braid::measure
