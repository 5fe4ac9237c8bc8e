// What Hugging Face transformers computes, Braid computes: logits, loss and every gradient of the
// oracles, on one device and cut over several.

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "planner/model/model.h"
#include "planner/plan/legal.h"
#include "runtime/checkpoint/huggingface.h"
#include "runtime/comm/in_process.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/train/worker.h"
#include "tests/support/gradients.h"
#include "tests/support/random_plan.h"
#include "tests/support/tensors.h"

namespace braid::models {
namespace {

using checkpoint::Checkpoint;
using checkpoint::SafetensorsFile;
using checkpoint::source_of;
using checkpoint::TensorView;

constexpr double kTolerance = 1e-11;

std::filesystem::path oracles() {
  return std::filesystem::path(BRAID_SOURCE_DIR) / "tests/models/oracles";
}

class Oracle {
 public:
  explicit Oracle(const std::string& name)
      : folder_(oracles() / name),
        model_(read_model(folder_ / "config.json")),
        file_(folder_ / "oracle.safetensors"),
        parameters_(folder_ / "oracle.safetensors", "param."),
        gradients_(folder_ / "oracle.safetensors", "grad.") {}

  const Model& model() const { return model_; }
  const Checkpoint& parameters() const { return parameters_; }
  const Checkpoint& gradients() const { return gradients_; }
  std::int64_t batch() const { return file_.at("labels").shape[0]; }
  at::Tensor logits() const { return tensor("logits", at::kDouble); }
  double loss() const { return tensor("loss", at::kDouble).item().toDouble(); }
  // Every tensor that has a gradient.
  std::vector<std::string> gradient_names() const {
    std::vector<std::string> names;
    for (const std::string& name : file_.names())
      if (name.starts_with("grad.")) names.push_back(name.substr(5));
    return names;
  }

  train::SampleSource samples() const {
    if (has("pixel_values")) return images();
    train::SampleSource source = has("decoder_input_ids") ? two_streams() : tokens();
    if (has("attention_mask"))
      source.length = [mask = tensor("attention_mask", at::kLong)](std::int64_t sample) {
        return mask[sample].sum().item().toLong();
      };
    return source;
  }

 private:
  // Position t of a causal model predicts label t + 1, and the last one nothing; of others, label
  // t.
  train::SampleSource tokens() const {
    return {
        .read =
            [ids = tensor("input_ids", at::kLong), labels = tensor("labels", at::kLong),
             ahead = is_causal(model_) ? 1 : 0](std::int64_t sample, std::span<std::int64_t> inputs,
                                                std::span<std::int64_t> targets) {
              const auto length = static_cast<std::int64_t>(inputs.size());
              const auto* from = ids.const_data_ptr<std::int64_t>() + sample * length;
              const auto* label = labels.const_data_ptr<std::int64_t>() + sample * length;
              std::copy(from, from + length, inputs.begin());
              std::ranges::fill(targets, ops::kIgnoreLabel);
              std::copy(label + ahead, label + length, targets.begin());
            },
        .ignores_labels = true};
  }

  train::SampleSource two_streams() const {
    return {.read =
                [ids = tensor("input_ids", at::kLong), labels = tensor("labels", at::kLong),
                 decoder_ids = tensor("decoder_input_ids", at::kLong)](
                    std::int64_t sample, std::span<std::int64_t> inputs,
                    std::span<std::int64_t> targets) {
                  const auto copy = [&](const at::Tensor& from, std::span<std::int64_t> to) {
                    std::copy_n(from[sample].const_data_ptr<std::int64_t>(), from.size(1),
                                to.begin());
                  };
                  copy(ids, inputs);
                  copy(decoder_ids, inputs.subspan(static_cast<std::size_t>(ids.size(1))));
                  copy(labels, targets);
                },
            .ignores_labels = true};
  }

  // [batch, channels, side, side] as the bytes of [batch, patches, channels · patch · patch].
  train::SampleSource images() const {
    const at::Tensor pixels = tensor("pixel_values", at::kDouble);
    const LayerShape& embedding = model_.types.front().shape;
    const auto patch = static_cast<std::int64_t>(
        std::llround(std::sqrt(static_cast<double>(embedding.patch_inputs / pixels.size(1)))));
    const at::Tensor patches = pixels.unflatten(3, {-1, patch})
                                   .unflatten(2, {-1, patch})
                                   .permute({0, 2, 4, 1, 3, 5})
                                   .add(1)
                                   .mul(127.5)
                                   .round()
                                   .to(at::kByte)
                                   .contiguous();
    train::SampleSource source;
    source.image = [patches, labels = tensor("labels", at::kLong)](std::int64_t sample,
                                                                   std::span<std::uint8_t> values) {
      const at::Tensor one = patches[sample];
      std::copy_n(one.const_data_ptr<std::uint8_t>(), values.size(), values.begin());
      return labels[sample].item().toLong();
    };
    return source;
  }

  bool has(const std::string& name) const {
    const std::vector<std::string> names = file_.names();
    return std::ranges::find(names, name) != names.end();
  }

  at::Tensor tensor(const std::string& name, at::ScalarType type) const {
    const TensorView& view = file_.at(name);
    at::Tensor copy = at::empty(view.shape, at::TensorOptions(type));
    std::memcpy(copy.data_ptr(), view.data, view.bytes);
    return copy;
  }

  std::filesystem::path folder_;
  Model model_;
  SafetensorsFile file_;
  Checkpoint parameters_, gradients_;
};

struct Computed {
  double loss = 0;
  at::Tensor logits;  // [batch, tokens, vocabulary], of one device
  GradientCollector gradients;
};

// One step of the oracle's batch.
void compute(const Oracle& oracle, const Plan& plan, Computed& computed) {
  at::set_num_threads(1);
  comm::run_in_process(plan.cluster.num_devices(), [&](comm::Group& world) {
    const at::NoGradGuard no_grad;
    RankModel* model = nullptr;
    train::WorkerOptions options{.numerics = parallel::fp64_numerics(at::kCPU),
                                 .adamw = {},
                                 .clip = 0,
                                 .model = {},
                                 .before_update = [&] { computed.gradients.add(*model); }};
    train::Worker worker(plan, world, options, oracle.samples());
    model = &worker.model();
    load_huggingface(*model, plan.model, oracle.parameters());
    worker.weights_changed();
    if (world.size() == 1) model->head->watch_logits(true);
    const double loss = worker.step(0, /*learning_rate=*/0).loss;
    if (world.rank() == 0) computed.loss = loss;
    if (world.size() == 1) computed.logits = model->head->logits().transpose(0, 1);
  });
}

void expect_parity(const Oracle& oracle, const Computed& computed, const std::string& fact) {
  EXPECT_TRUE(std::abs(computed.loss / oracle.loss() - 1) <= kTolerance)
      << fact << ": loss " << computed.loss << ", expected " << oracle.loss();
  EXPECT_LE(computed.gradients.disagreement(), 0) << fact;
  // A gradient that is nothing but rounding (of k's bias without rotary positions) is held against
  // the others.
  double largest = 0;
  std::map<std::string, at::Tensor> expected;
  std::vector<std::string> sources;
  for (const auto& [name, whole] : computed.gradients.gradients()) {
    expected[name] = oracle.gradients().parameter(oracle.model(), whole.layer, whole.spec);
    largest = std::max(largest, expected[name].abs().max().item().toDouble());
    sources.push_back(source_of(oracle.model(), whole.layer, whole.spec.name).tensor);
  }
  std::ranges::sort(sources);
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  EXPECT_EQ(sources, oracle.gradient_names()) << fact;
  for (const auto& [name, whole] : computed.gradients.gradients()) {
    const double apart = whole.value.sub(expected[name]).abs().max().item().toDouble();
    const double scale = std::max(expected[name].abs().max().item().toDouble(), 1e-3 * largest);
    EXPECT_TRUE(apart <= kTolerance * scale)
        << fact << ": gradient of " << name << " is " << apart / scale << " off";
  }
}

// How the oracle's model is cut: layers take the strategies in turn.
struct Split {
  const char* fact;
  std::vector<Strategy> strategies;
  PipelineShape shape = {};
};

const std::vector<Split>& splits() {
  using enum TensorKind;
  static const std::vector<Split> kTable = {
      {"tp2", {{.tp = 2}}},
      {"tp4, more than key-value heads", {{.tp = 4}}},
      {"ulysses2", {{.tp = 2, .tp_kind = ulysses}}},
      {"cp2", {{.cp = 2}}},
      {"tp2 cp2", {{.tp = 2, .cp = 2}}},
      {"dp2 zero1", {{.dp = 2, .zero = Zero::optimizer}}},
      {"dp2 zero3 full", {{.dp = 2, .zero = Zero::parameters, .recompute = Recompute::full}}},
      {"dp2 ep2", {{.dp = 2, .ep = 2}}},
      {"tp2 dp2 zero2 ep2", {{.tp = 2, .dp = 2, .zero = Zero::gradients, .ep = 2}}},
      {"ulysses2 cp2 zero3", {{.tp = 2, .tp_kind = ulysses, .cp = 2, .zero = Zero::parameters}}},
      {"tp2 and dp2 zero3 in turn", {{.tp = 2}, {.dp = 2, .zero = Zero::parameters}}},
      {"cp2 and tp2 and ulysses2 in turn", {{.cp = 2}, {.tp = 2}, {.tp = 2, .tp_kind = ulysses}}},
      {"pp2", {{}}, {ScheduleKind::one_f_one_b, 2, 2}},
      {"pp2 in two chunks", {{}}, {ScheduleKind::interleaved, 2, 2, 2}},
      {"pp2 zero bubble", {{}}, {ScheduleKind::zero_bubble, 2, 2}},
      {"pp2 tp2 cp2", {{.tp = 2, .cp = 2}}, {ScheduleKind::gpipe, 2, 2}},
  };
  return kTable;
}

// What a layer can follow of a strategy: experts are split where there are some.
Strategy fitted(Strategy strategy, const LayerShape& layer) {
  if (layer.experts == 0) strategy.ep = 1;
  if (layer.kind != LayerKind::block) strategy.recompute = Recompute::none;
  return strategy;
}

Plan plan_of(const Model& model, std::int64_t batch, const Split& split) {
  Plan plan = reference_plan(model, batch);
  plan.shape = split.shape;
  plan.cluster = tiny_cluster(split.shape.stages * split.strategies.front().devices());
  plan.stages.assign(static_cast<std::size_t>(split.shape.stages), {});
  const int parts = split.shape.stages * split.shape.chunks;
  for (int v = 0; v < parts; ++v) {
    const LayerRange range{model.num_layers() * v / parts, model.num_layers() * (v + 1) / parts};
    StagePlan& stage = plan.stages[static_cast<std::size_t>(v % split.shape.stages)];
    stage.chunks.push_back(range);
    for (int layer = range.begin; layer < range.end; ++layer)
      stage.strategies.push_back(
          fitted(split.strategies[static_cast<std::size_t>(layer) % split.strategies.size()],
                 model.type_of(layer).shape));
  }
  verify(plan, split.fact);
  return plan;
}

// Whether every layer can be cut so: three by three patches and a class token are ten tokens, and
// six heads have no fourth.
bool fits(const Model& model, std::int64_t batch, const Split& split) {
  const std::int64_t micro_batch = batch / split.shape.micro_batches;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const LayerShape& shape = model.type_of(layer).shape;
    for (const Strategy& strategy : split.strategies)
      if (strategy_fault(shape, fitted(strategy, shape), micro_batch)) return false;
  }
  return true;
}

class Parity : public testing::TestWithParam<std::string> {};

TEST_P(Parity, OneDeviceHasTheLogitsLossAndGradientsOfTransformers) {
  const Oracle oracle(GetParam());
  Computed computed;
  compute(oracle, reference_plan(oracle.model(), oracle.batch()), computed);
  EXPECT_TRUE(close(computed.logits.reshape(oracle.logits().sizes()), oracle.logits(), kTolerance));
  expect_parity(oracle, computed, "one device");
}

TEST_P(Parity, EverySplitHasTheLossAndGradientsOfTransformers) {
  const Oracle oracle(GetParam());
  int num_splits = 0;
  for (const Split& split : splits()) {
    if (!fits(oracle.model(), oracle.batch(), split)) continue;
    ++num_splits;
    Computed computed;
    compute(oracle, plan_of(oracle.model(), oracle.batch(), split), computed);
    expect_parity(oracle, computed, split.fact);
  }
  EXPECT_GE(num_splits, 11);
}

TEST_P(Parity, RandomPlansHaveTheLossAndGradientsOfTransformers) {
  const Oracle oracle(GetParam());
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Computed computed;
    compute(oracle, PlanDice(seed).plan(oracle.model(), oracle.batch()), computed);
    expect_parity(oracle, computed, fmt::format("seed {}", seed));
  }
}

// Inside the encoder, between the two stacks and inside the decoder; inside and between stages of
// different widths, on either side of a merge. Stages of two devices that are split another way on
// either side of the cut.
TEST(UnevenLayers, HaveTheLossAndGradientsOfTransformersWhereverTheirPipelineIsCut) {
  for (const char* name : {"t5", "t5_v1_1", "swin"}) {
    const Oracle oracle(name);
    const int layers = oracle.model().num_layers();
    for (int cut = 2; cut < layers - 1; ++cut) {
      Plan plan = reference_plan(oracle.model(), oracle.batch());
      plan.shape = {ScheduleKind::one_f_one_b, 2, 1};
      plan.cluster = tiny_cluster(4);
      plan.stages = {
          {.chunks = {{0, cut}},
           .strategies = std::vector<Strategy>(static_cast<std::size_t>(cut), Strategy{.tp = 2})},
          {.chunks = {{cut, layers}},
           .strategies =
               std::vector<Strategy>(static_cast<std::size_t>(layers - cut), Strategy{.dp = 2})}};
      verify(plan, name);
      Computed computed;
      compute(oracle, plan, computed);
      expect_parity(oracle, computed, fmt::format("{} cut ahead of layer {}", name, cut));
    }
  }
}

// Every folder of oracles.
std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(oracles()))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Oracles, Parity, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace braid::models
