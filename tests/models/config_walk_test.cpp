// One key of a config at a time: Braid computes the loss and gradients that transformers computes,
// or refuses, and it names the keys that it does not know. scripts/make_config_walk writes the
// data.

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/model/huggingface.h"
#include "planner/model/huggingface_keys.h"
#include "planner/model/model.h"
#include "runtime/checkpoint/huggingface.h"
#include "runtime/comm/in_process.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/train/worker.h"
#include "tests/support/random_plan.h"

namespace braid::models {
namespace {

using checkpoint::part_of;
using checkpoint::Source;
using checkpoint::source_of;
using checkpoint::stored_shape;

using huggingface::ConfigKey;
using huggingface::KeyUse;

constexpr double kTolerance = 1e-9;
constexpr std::int64_t kBatch = 2;

// splitmix64 of the counter that begins at FNV-1a of a name, as in scripts/make_config_walk.
class Hashes {
 public:
  explicit Hashes(std::string_view name) {
    for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};

at::Tensor integers(const std::string& name, std::vector<std::int64_t> shape, std::int64_t below) {
  at::Tensor values = at::empty(shape, at::TensorOptions(at::kLong));
  Hashes hashes(name);
  for (std::int64_t i = 0; i < values.numel(); ++i)
    values.mutable_data_ptr<std::int64_t>()[i] =
        static_cast<std::int64_t>((hashes.next() >> 8) % static_cast<std::uint64_t>(below));
  return values;
}

// In [-1/4, 1/4); around one where they scale a norm's output.
at::Tensor weights(const std::string& name, const std::vector<std::int64_t>& shape) {
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool scales =
      (lower.find("norm") != std::string::npos || lower.find(".ln_") != std::string::npos) &&
      name.ends_with(".weight");
  at::Tensor values = at::empty(shape, at::TensorOptions(at::kDouble));
  Hashes hashes(name);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const double unit = std::ldexp(static_cast<double>(hashes.next() >> 11), -52) - 1;
    values.mutable_data_ptr<double>()[i] = (scales ? 1 : 0) + 0.25 * unit;
  }
  return values;
}

void fill(RankModel& rank_model, const Model& model) {
  for (std::size_t i = 0; i < rank_model.layers.size(); ++i) {
    parallel::Parameters& parameters = rank_model.layers[i]->parameters();
    const int layer = rank_model.indices[i];
    const LayerShape& shape = model.type_of(layer).shape;
    parameters.fill([&](parallel::Parameters::Id id) {
      const parallel::ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(id)];
      const Source source = source_of(model, layer, spec.name);
      const at::Tensor stored = weights(source.tensor, stored_shape(source, shape, spec.shape));
      const at::Tensor whole = source.folded ? stored : part_of(stored, source, shape, spec.shape);
      return parallel::local_slice(spec, parameters.local(id), whole.reshape(spec.shape));
    });
  }
}

train::SampleSource images(const Model& model, std::int64_t channels) {
  const LayerShape& embedding = model.types.front().shape;
  const auto patch = static_cast<std::int64_t>(
      std::llround(std::sqrt(static_cast<double>(embedding.patch_inputs / channels))));
  const std::int64_t patches = embedding.tokens - (embedding.class_token ? 1 : 0);
  const std::int64_t side =
      patch * static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(patches))));
  const at::Tensor pixels = integers("pixels", {kBatch, channels, side, side}, 256)
                                .unflatten(3, {-1, patch})
                                .unflatten(2, {-1, patch})
                                .permute({0, 2, 4, 1, 3, 5})
                                .to(at::kByte)
                                .contiguous();
  train::SampleSource source;
  source.image = [pixels, labels = integers("labels", {kBatch}, model.types.back().shape.vocab)](
                     std::int64_t sample, std::span<std::uint8_t> values) {
    const at::Tensor one = pixels[sample];
    std::copy_n(one.const_data_ptr<std::uint8_t>(), values.size(), values.begin());
    return labels[sample].item().toLong();
  };
  return source;
}

train::SampleSource tokens(const Model& model) {
  const std::vector<std::int64_t> shape = {kBatch, model.sequence};
  const std::int64_t vocab = model.types.front().shape.vocab;
  const at::Tensor labels =
      integers("labels", shape, vocab)
          .masked_fill(integers("ignored", shape, 4).eq(0), ops::kIgnoreLabel);
  const bool two_streams = model.types.front().shape.carried_tokens > 0;
  return {.read =
              [=, ids = integers("input_ids", shape, vocab),
               decoder_ids = integers("decoder_input_ids", shape, vocab),
               ahead = is_causal(model) && !two_streams ? 1 : 0](std::int64_t sample,
                                                                 std::span<std::int64_t> inputs,
                                                                 std::span<std::int64_t> targets) {
                const std::int64_t length = shape[1];
                const auto row = [&](const at::Tensor& of) {
                  return of.const_data_ptr<std::int64_t>() + sample * length;
                };
                std::copy_n(row(ids), length, inputs.begin());
                if (two_streams) std::copy_n(row(decoder_ids), length, inputs.begin() + length);
                std::ranges::fill(targets, ops::kIgnoreLabel);
                std::copy(row(labels) + ahead, row(labels) + length, targets.begin());
              },
          .ignores_labels = true};
}

struct Computed {
  double loss = 0, norm = 0;
};

Computed compute(const Model& model, std::int64_t channels) {
  Computed computed;
  at::set_num_threads(1);
  comm::run_in_process(1, [&](comm::Group& world) {
    const at::NoGradGuard no_grad;
    const bool image = model.types.front().shape.patch_inputs > 0;
    train::Worker worker(
        reference_plan(model, kBatch), world,
        {.numerics = parallel::fp64_numerics(at::kCPU), .adamw = {}, .clip = 0, .model = {}},
        image ? images(model, channels) : tokens(model));
    fill(worker.model(), model);
    worker.weights_changed();
    const train::StepResult result = worker.step(0, /*learning_rate=*/0);
    computed = {result.loss, result.gradient_norm};
  });
  return computed;
}

bool near(double value, double expected) {
  return std::abs(value - expected) <= kTolerance * std::abs(expected);
}

struct Counts {
  int agree = 0, refused = 0, transformers_refuses = 0;
};

class FamilyWalk {
 public:
  explicit FamilyWalk(const Json& family)
      : name_(family.at("family")), base_(family.at("base")), usual_(family.at("result")) {
    compare("the base", base_, usual_);
    for (const Json& c : family.at("cases")) replay(c);
  }

  Counts counts;

 private:
  void replay(const Json& c) {
    const std::string key = c.at("key");
    Json config = base_;
    if (c.contains("value")) {
      config[key] = c.at("value");
    } else {
      config.erase(key);
    }
    const std::string fact = fmt::format("{}: {} {}", name_, key,
                                         c.contains("value") ? c.at("value").dump() : "left out");
    const Json& result = c.at("result");
    if (result == "refused") {
      ++counts.transformers_refuses;
    } else {
      compare(fact, config, result == "same" ? usual_ : result);
    }
    const ConfigKey* known = huggingface::find_key(name_, key);
    if (known != nullptr && known->use != KeyUse::dropout) return;
    if (known != nullptr && (!c.contains("value") || c.at("value") == 0)) return;
    const std::vector<std::string> warnings = config_warnings(config, "config.json");
    const bool named = std::ranges::any_of(
        warnings, [&](const std::string& w) { return w.find(key) != std::string::npos; });
    EXPECT_TRUE(named) << fact << " is ignored without a word";
  }

  void compare(const std::string& fact, const Json& config, const Json& expected) {
    Computed computed;
    try {
      const Model model = model_from_json(config, "config.json");
      require_supported(model);
      computed = computed_once(model, config.value("num_channels", 3));
    } catch (const Error&) {
      ++counts.refused;
      return;
    }
    ++counts.agree;
    EXPECT_TRUE(near(computed.loss, expected[0]) && near(computed.norm, expected[1]))
        << fact
        << fmt::format(": loss {} and gradient norm {}, transformers has {}", computed.loss,
                       computed.norm, expected.dump());
  }

  // Most keys leave the model as it is.
  Computed computed_once(const Model& model, std::int64_t channels) {
    const auto [found, added] =
        computed_.try_emplace(fmt::format("{} {}", to_json(model).dump(), channels));
    if (added) found->second = compute(model, channels);
    return found->second;
  }

  std::string name_;
  Json base_, usual_;
  std::map<std::string, Computed> computed_;
};

const Json& walked() {
  static const Json kWalked =
      read_json(std::filesystem::path(BRAID_SOURCE_DIR) / "tests" / "models" / "config_walk.json");
  return kWalked;
}

class ConfigWalk : public testing::TestWithParam<std::string> {};

TEST_P(ConfigWalk, AgreesWithTransformersOrIsRefused) {
  for (const Json& family : walked().at("families")) {
    if (family.at("family") != GetParam()) continue;
    const FamilyWalk walk(family);
    EXPECT_GT(walk.counts.agree, 20);
    fmt::print("{}: {} configs agree, {} are refused, transformers refuses {}\n", GetParam(),
               walk.counts.agree, walk.counts.refused, walk.counts.transformers_refuses);
    return;
  }
  FAIL() << "no walk of " << GetParam();
}

TEST_P(ConfigWalk, FindsEveryKeyOfTheClassInTheTable) {
  for (const Json& family : walked().at("families")) {
    if (family.at("family") != GetParam()) continue;
    std::map<KeyUse, int> counts;
    for (const std::string key : family.at("keys")) {
      const ConfigKey* known = huggingface::find_key(GetParam(), key);
      EXPECT_NE(known, nullptr) << GetParam() << ": " << key;
      if (known != nullptr) ++counts[known->use];
    }
    fmt::print("{}: {} keys: {} read, {} harmless, {} refused unless default, {} dropout\n",
               GetParam(), family.at("keys").size(), counts[KeyUse::read], counts[KeyUse::harmless],
               counts[KeyUse::fixed], counts[KeyUse::dropout]);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ConfigWalk, testing::ValuesIn(huggingface::family_names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace braid::models
