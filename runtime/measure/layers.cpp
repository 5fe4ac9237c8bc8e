#include "runtime/measure/layers.h"

#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>

#include "planner/plan/legal.h"
#include "runtime/comm/dry.h"
#include "runtime/measure/host.h"
#include "runtime/measure/mini_step.h"
#include "runtime/measure/overlap.h"
#include "runtime/ops/device.h"
#include "runtime/ops/fused.h"
#include "runtime/train/adamw.h"

namespace braid::measure {

namespace {

// Beyond this a pass is long enough for its time to be linear in the samples.
constexpr double kLongPass = 0.4;
constexpr int kMostBlocks = 3;
// A GPU runs faster than its power allows for as long, then slower, and then as in training.
constexpr double kGpuSettles = 0.8;  // seconds
constexpr double kManyTurns = 0.1;   // seconds in which ranks that share a core take several turns
constexpr std::int64_t kStateBytes = 18;  // of one parameter, at most: weight, gradient, AdamW's

// One measurement's numbers, in the order in which the journal has them.
enum Value {
  embedding_forward,
  embedding_backward,
  block_forward,
  block_backward,
  block_input,
  block_weight,
  block_selective,
  head_forward,
  head_backward,
  embedding_workspace,
  block_workspace,
  block_workspace_selective,
  block_workspace_full,
  head_workspace,
  num_values
};
using Values = std::vector<double>;

std::string key_of(const Model& model, int type, const LayerQuestion& q) {
  return fmt::format("{} {}{} cp{} x{}", model.types[static_cast<std::size_t>(type)].name,
                     name_of(q.kind), q.tp, q.cp, q.samples);
}

class Measuring {
 public:
  Measuring(Bench& bench, const Model& model, const ModelOptions& options, const Cluster& cluster,
            Bytes memory)
      : bench_(bench),
        model_(model),
        options_(options),
        memory_(memory),
        shares_cores_(bench.device().is_cpu() && cluster.node_width() > find_host().cores),
        numerics_(
            parallel::numerics_of(options.precision, options.gradient_precision, bench.device())) {}

  std::optional<Values> measure(int type, const LayerQuestion& q) {
    return bench_.run(key_of(model_, type, q), [&] {
      Values values(num_values, -1);
      time_with(type, q, Recompute::none, values);
      if (options_.space.recompute) {
        time_with(type, q, Recompute::selective, values);
        time_with(type, q, Recompute::full, values);
      }
      return values;
    });
  }

  // The optimizer's whole step over as many elements.
  std::optional<double> update(std::int64_t elements) {
    const auto found = bench_.run(fmt::format("update {}", elements), [&] {
      const auto alone = std::shared_ptr<comm::Group>(comm::dry_group(0, 1));
      parallel::FlatBuffer buffer("update", {{.begin = 0, .end = elements}}, Zero::none, alone,
                                  numerics_);
      std::vector<parallel::FlatBuffer*> buffers = {&buffer};
      const train::AdamW adamw;
      constexpr double kRate = 1e-4, kDeviation = 1e-2;
      constexpr double kScale = 0.99;  // so that no round of many finds numbers too small for fp32
      const at::Tensor pace =
          ops::fused::adamw_pace(kRate, adamw.beta1, adamw.beta2, 1).to(numerics_.device);
      std::int64_t step = 0;
      // What backward leaves has been written, not zeroed; the allocator gives the same memory
      // again.
      const auto gradients = [&] {
        buffer.begin_gradients();
        return buffer.gradients(0, elements).value;
      };
      gradients().normal_(0, kDeviation);
      return Values{bench_.time([&] {
        gradients();
        buffer.start_reduction();
        const at::Tensor squares = train::gradient_squares(buffers, *alone);
        ++step;
        if (train::takes_fused_adamw(buffers)) {
          train::fused_adamw_step(buffers, adamw, pace, squares.mul(0).add(kScale));
          return;
        }
        squares.item();  // the host looks at the norm before it goes on
        train::adamw_step(buffers, adamw, kRate, step, kScale);
      })};
    });
    return found ? std::optional((*found)[0]) : std::nullopt;
  }

  // What a pass gains from half of the ranks, this one not among them, that rest: the ranks of one
  // device share its power, its memory and its caches, those of one core take turns.
  std::optional<double> rest_gain(int type, const LayerQuestion& q) {
    comm::Group& world = bench_.world();
    if (world.size() == 1) return std::nullopt;
    const bool is_lower = world.rank() < world.size() / 2;
    const auto found = bench_.run("layers while half of the ranks rest", [&] {
      ops::release_cached(bench_.device());
      MiniStep mini = make_mini(type, q, Recompute::none);
      world.barrier("all work");
      const double all = settle(mini);
      double half = 0;
      for (const bool lower : {true, false}) {
        world.barrier("half of the ranks rest");
        if (is_lower == lower) half = settle(mini);
      }
      return Values{half, all};
    });
    if (!found) return std::nullopt;
    return std::clamp(1 - (*found)[0] / (*found)[1], 0.0, 1.0);
  }

  OverlapTask overlap_task() const {
    return {.bench = bench_,
            .room = memory_ / 8,
            .largest_message = memory_ / 8,
            .values = numerics_.compute,
            .sums = numerics_.gradient};
  }

  // What layers and their collectives do to each other: passes over memory suffer more than
  // products, and an operation waits for the product that is under way.
  void overlaps(int type, const LayerQuestion& q, const Values& alone, Profile& profile) {
    if (bench_.world().size() == 1) return;
    ops::release_cached(bench_.device());
    MiniStep mini = make_mini(type, q, Recompute::none);
    const LayerShape& shape = model_.types[static_cast<std::size_t>(type)].shape;
    measure_overlaps(overlap_task(),
                     {.name = "layers beside",
                      .compute = [&] { mini.begin_step(); },
                      .seconds = alone[embedding_forward] + alone[embedding_backward] +
                                 alone[head_forward] + alone[head_backward] +
                                 blocks(type, q) * (alone[block_forward] + alone[block_backward]),
                      .elements = parameters_per_rank(shape, 1, 1),
                      .block = Seconds(alone[block_forward] + alone[block_backward])},
                     profile);
  }

 private:
  MiniStep make_mini(int type, const LayerQuestion& q, Recompute recompute) const {
    return {model_, q, bench_.world().rank() % (q.tp * q.cp),
            MiniOptions{.block_type = type,
                        .blocks = blocks(type, q),
                        .recompute = recompute,
                        .numerics = numerics_}};
  }

  // As many blocks as leave most of the memory free.
  int blocks(int type, const LayerQuestion& q) const {
    const LayerShape& shape = model_.types[static_cast<std::size_t>(type)].shape;
    const int split = q.kind == TensorKind::megatron ? q.tp : 1;
    const Bytes kept = saved_bytes(shape, Recompute::none, options_.precision);
    const std::int64_t one = kStateBytes * parameters_per_rank(shape, split, 1) +
                             scaled(kept, static_cast<double>(q.samples) / (q.tp * q.cp)).value();
    // What a merge hands on, another does not take.
    const auto there = shape.kind == LayerKind::merge ? 1 : std::ranges::count(model_.layers, type);
    return static_cast<int>(std::clamp<std::int64_t>(memory_.value() / 4 / one, 1,
                                                     std::min<std::int64_t>(kMostBlocks, there)));
  }

  // Passes until the device's power has settled, or turns on a core have evened out. A block's
  // seconds in the second half, in the mean: a turn of another rank falls on few passes.
  double settle(MiniStep& mini) const {
    using Clock = std::chrono::steady_clock;
    using Seconds = std::chrono::duration<double>;
    constexpr int kPasses = 12;
    mini.step();  // the first one is slow
    const auto begin = Clock::now();
    mini.step();
    const Seconds all = bench_.device().is_cpu()
                            ? std::max(Seconds(kManyTurns), kPasses * Seconds(Clock::now() - begin))
                            : Seconds(kGpuSettles);
    double sum = 0;
    int count = 0;
    do {
      const bool counts = Clock::now() - begin > all / 2;
      const MiniStep::Times times = mini.step();
      if (!counts) continue;
      sum += times.block_forward + times.block_backward;
      ++count;
    } while (Clock::now() - begin < all || count == 0);
    return sum / count;
  }

  // A pass that is shorter than a rank's turn on a shared core runs as if alone, and waits for its
  // turn unseen. So a repetition there is as many passes as outlast several turns.
  Values time_passes(const std::function<Values()>& pass) {
    int passes = 1;
    if (shares_cores_) {
      pass();  // the first one is slow
      const Values once = pass();
      const double seconds = std::accumulate(once.begin(), once.end(), 0.0);
      passes = std::clamp(static_cast<int>(kManyTurns / std::max(seconds, 1e-6)), 1, 200);
    }
    return bench_.time_parts([&] {
      Values means = pass();
      for (int i = 1; i < passes; ++i) {
        const Values more = pass();
        std::ranges::transform(means, more, means.begin(), std::plus<>());
      }
      for (double& mean : means) mean /= passes;
      return means;
    });
  }

  void time_with(int type, const LayerQuestion& q, Recompute recompute, Values& values) {
    ops::release_cached(bench_.device());
    MiniStep mini = make_mini(type, q, recompute);
    mini.step();  // the first one takes memory that libraries keep
    const MiniStep::Workspace bytes = mini.workspace();
    // What it takes is forward once more.
    if (recompute == Recompute::full) {
      values[block_workspace_full] = bytes.block;
      return;
    }
    if (recompute == Recompute::none && !bench_.device().is_cpu()) settle(mini);
    const Values times = time_passes([&] {
      const MiniStep::Times t = mini.step();
      return Values{t.embedding_forward, t.embedding_backward, t.block_forward,
                    t.block_backward,    t.head_forward,       t.head_backward};
    });
    if (recompute == Recompute::selective) {
      // Forward is the same work as without it, and tells how fast the device is now.
      values[block_selective] = times[3] * values[block_forward] / times[2];
      values[block_workspace_selective] = bytes.block;
      return;
    }
    values[embedding_forward] = times[0];
    values[embedding_backward] = times[1];
    values[block_forward] = times[2];
    values[block_backward] = times[3];
    values[head_forward] = times[4];
    values[head_backward] = times[5];
    values[embedding_workspace] = bytes.embedding;
    values[block_workspace] = bytes.block;
    values[head_workspace] = bytes.head;
    const Values halves = time_passes([&] {
      const MiniStep::Halves h = mini.split_step();
      return Values{h.input, h.weight};
    });
    values[block_input] = halves[0];
    values[block_weight] = halves[1];
  }

  Bench& bench_;
  const Model& model_;
  const ModelOptions& options_;
  Bytes memory_;
  bool shares_cores_;  // with other ranks
  parallel::Numerics numerics_;
};

std::optional<Bytes> counted(double bytes) {
  if (bytes < 0) return std::nullopt;
  return Bytes(static_cast<std::int64_t>(bytes));
}

ComputeSample sample_of(const LayerQuestion& q, std::int64_t tokens) {
  ComputeSample sample;
  sample.samples = static_cast<double>(q.samples);
  sample.sequence = tokens;
  sample.split = q.tp;
  sample.kind = q.kind;
  sample.context = q.cp;
  return sample;
}

ComputeSample block_sample(const LayerQuestion& q, std::int64_t tokens, const Values& v) {
  ComputeSample sample = sample_of(q, tokens);
  sample.forward = Seconds(v[block_forward]);
  // The halves say how backward divides, the pass in one go how long it takes.
  const double share = v[block_input] / (v[block_input] + v[block_weight]);
  sample.backward_input = Seconds(share * v[block_backward]);
  sample.backward_weight = Seconds((1 - share) * v[block_backward]);
  if (v[block_selective] >= 0) {
    const double more = v[block_selective] - v[block_backward];
    sample.selective = Seconds(std::clamp(more, 0.0, v[block_forward]));
    sample.full = sample.forward;
  }
  sample.workspace = counted(v[block_workspace]);
  sample.workspace_selective = counted(v[block_workspace_selective]);
  sample.workspace_full = counted(v[block_workspace_full]);
  return sample;
}

// An embedding's backward is its table's gradient; a head's makes that of its matrix in forward.
ComputeSample embedding_sample(const LayerQuestion& q, std::int64_t tokens, const Values& v) {
  ComputeSample sample = sample_of(q, tokens);
  sample.forward = Seconds(v[embedding_forward]);
  sample.backward_input = Seconds(0);
  sample.backward_weight = Seconds(v[embedding_backward]);
  sample.workspace = counted(v[embedding_workspace]);
  return sample;
}
ComputeSample head_sample(const LayerQuestion& q, std::int64_t tokens, const Values& v) {
  ComputeSample sample = sample_of(q, tokens);
  sample.forward = Seconds(v[head_forward]);
  sample.backward_input = Seconds(v[head_backward]);
  sample.backward_weight = Seconds(0);
  sample.workspace = counted(v[head_workspace]);
  return sample;
}

// Whether layers of a type can be split so: stages of one model may differ in that.
bool can_be_asked(const LayerShape& shape, const LayerQuestion& q) {
  return !strategy_fault(shape, {.tp = q.tp, .tp_kind = q.kind, .cp = q.cp}, q.samples);
}

std::vector<int> block_types(const Model& model) {
  std::vector<int> types;
  for (std::size_t layer = 1; layer + 1 < model.layers.size(); ++layer)
    if (std::ranges::find(types, model.layers[layer]) == types.end())
      types.push_back(model.layers[layer]);
  return types;
}

// From what a wide plan leaves a rank of one layer to what one rank holds of all it can hold.
std::vector<std::int64_t> update_sizes(const Model& model, Bytes memory) {
  std::vector<std::int64_t> sizes;
  const std::int64_t most = std::min(parameters(model), memory.value() / 2 / kStateBytes);
  for (std::int64_t size = 1 << 18; size < most; size *= 8) sizes.push_back(size);
  sizes.push_back(std::max<std::int64_t>(most, 1));
  return sizes;
}

}  // namespace

ModelCost measure_model(Bench& bench, Profile& profile, const Model& model,
                        const ModelOptions& options) {
  const at::NoGradGuard no_grad;
  models::require_supported(model);
  const Cluster& cluster = *profile.cluster;
  Bytes memory = cluster.device_types.front().memory;
  if (options.memory > Bytes()) memory = std::min(memory, options.memory);
  const Questions questions = layer_questions(model, cluster,
                                              {.global_batch = options.global_batch,
                                               .precision = options.precision,
                                               .memory = memory,
                                               .space = options.space});
  const std::vector<int> types = block_types(model);
  const std::vector<std::int64_t> sizes = update_sizes(model, memory);
  const auto shape_of = [&](int type) -> const LayerShape& {
    return model.types[static_cast<std::size_t>(type)].shape;
  };
  std::ptrdiff_t asked = 0;
  for (const int type : types)
    asked += std::ranges::count_if(
        questions.asked, [&](const LayerQuestion& q) { return can_be_asked(shape_of(type), q); });
  Measuring measuring(bench, model, options, cluster, memory);
  bench.expect(static_cast<int>(asked + std::ssize(sizes)) +
               num_overlap_measurements(measuring.overlap_task()) +
               (bench.world().size() == 1 ? 0 : 1));

  std::map<int, MeasuredLayer> layers;
  const auto add = [&](int type, ComputeSample sample) {
    MeasuredLayer& layer = layers[type];
    layer.type = model.types[static_cast<std::size_t>(type)].name;
    layer.compute.push_back(sample);
  };
  const int embedding = model.layers.front(), head = model.layers.back();
  ModelCost cost{questions.possible, questions.reachable, 0};
  std::optional<LayerQuestion> first;
  Values first_values;
  for (const int type : types) {
    std::optional<LayerQuestion> long_one;  // more samples of this split need no measuring
    for (const LayerQuestion& q : questions.asked) {
      if (long_one && long_one->kind == q.kind && long_one->tp == q.tp && long_one->cp == q.cp)
        continue;
      if (!can_be_asked(shape_of(type), q)) continue;
      const auto found = measuring.measure(type, q);
      if (!found) continue;
      ++cost.measured;
      const Values& v = *found;
      if (!first && type == types.front()) first = q, first_values = v;
      add(type, block_sample(q, shape_of(type).tokens, v));
      if (type == types.front()) add(embedding, embedding_sample(q, model.sequence, v));
      if (type == types.back()) add(head, head_sample(q, shape_of(head).tokens, v));
      const bool is_long = v[block_forward] + v[block_backward] > kLongPass;
      long_one = is_long ? std::optional(q) : std::nullopt;
    }
  }
  if (first) {
    profile.rest_gain = measuring.rest_gain(types.front(), *first);
    measuring.overlaps(types.front(), *first, first_values, profile);
  }
  for (const auto& [type, layer] : layers) profile.layers.push_back(layer);
  for (const std::int64_t size : sizes)
    if (const auto seconds = measuring.update(size))
      profile.updates.push_back({size, Seconds(*seconds)});
  ops::release_cached(bench.device());
  profile.model = model;
  profile.precision = options.precision;
  profile.gradient_precision = options.gradient_precision;
  return cost;
}

}  // namespace braid::measure
