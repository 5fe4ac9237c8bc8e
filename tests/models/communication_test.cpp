// One layer's passes on one rank of random plans, played on tensors without memory: the collectives
// that they begin are those that the planner charges for, in number and in bytes.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "planner/cost/braid_model.h"
#include "planner/simulate/price_plan.h"
#include "runtime/comm/dry.h"
#include "runtime/models/model.h"
#include "tests/support/random_plan.h"
#include "tests/support/round_prices.h"

namespace braid {
namespace {

using comm::OperationKind;
using Volume = comm::Traffic::Volume;
using Volumes = std::map<OperationKind, Volume>;

// One micro-batch's passes, and what comes once at the end of a step.
struct Passes {
  Volumes forward, backward, end;
};

constexpr std::pair<OperationKind, Collective> kKinds[] = {
    {OperationKind::all_reduce, Collective::all_reduce},
    {OperationKind::all_gather, Collective::all_gather},
    {OperationKind::reduce_scatter, Collective::reduce_scatter},
    {OperationKind::all_to_all, Collective::all_to_all},
    {OperationKind::message, Collective::point_to_point},
};

// A rank of a plan that is alone.
class LonelyRank {
 public:
  LonelyRank(const Plan& plan, int device)
      : numerics_(
            parallel::numerics_of(plan.precision, plan.gradient_precision, at::Device(at::kMeta))),
        world_(comm::dry_group(device, plan.cluster.num_devices(), traffic_)),
        groups_(*world_),
        model_(models::build(plan, device, numerics_, groups_, {})) {}

  std::size_t num_layers() const { return model_.layers.size(); }
  const parallel::Site& site(std::size_t layer) const { return model_.layers[layer]->site(); }

  // As Stage does it.
  Passes play(std::size_t index) {
    parallel::Layer& layer = *model_.layers[index];
    parallel::Parameters& parameters = layer.parameters();
    parallel::Saved saved;
    traffic_->by_kind.clear();
    Passes passes;
    parameters.wait_weights();
    if (layer.gradients_in_forward()) parameters.begin_gradients();
    parallel::Side side = side_of(layer.site());
    parallel::Feed enters = feed(layer.site());
    enters.side = &side;
    const at::Tensor y = layer.forward(activation(layer.site()), enters, saved);
    passes.forward = take();
    // What is begun to be scattered here, backward waits for.
    if (layer.gradients_in_forward()) parameters.end_gradients();
    parameters.release_weights();

    parallel::WeightWork at_once = parallel::WeightWork::at_once();
    parameters.wait_weights();
    parameters.begin_gradients();
    parallel::Feed again;
    again.side = &side;
    layer.backward(y, again, saved, at_once);  // a gradient has the shape of what it is of
    parameters.end_gradients();
    parameters.settle_gradients();
    parameters.release_weights();
    passes.backward = take();

    for (parallel::FlatBuffer* buffer : parameters.buffers()) {
      buffer->reduce_gradients();
      buffer->share_weights();
    }
    if (&layer == model_.embedding) {
      model_.send_gradients_of_copies();
      model_.send_copies();
    }
    passes.end = take();
    add_what_dry_ranks_know(layer.site(), passes);
    return passes;
  }

  // Between the copies of a tied matrix at the end of a step, as sent by this rank.
  Volume tied_messages() {
    traffic_->by_kind.clear();
    model_.tied->send_gradients();
    model_.tied->send_weights();
    return take()[OperationKind::message];
  }

  // Gradients of norms and biases, which the ranks of a tensor group sum among themselves: small,
  // and left out of the price.
  Volume sums_of_shared(std::size_t index) {
    Volume sums;
    for (const parallel::FlatBuffer* buffer : model_.layers[index]->parameters().buffers())
      for (const parallel::ElementRun& run : buffer->owned()) {
        if (run.sharing == nullptr || run.sharing->size() == 1) continue;
        ++sums.operations;
        sums.bytes +=
            (run.end - run.begin) * static_cast<std::int64_t>(c10::elementSize(numerics_.gradient));
      }
    return sums;
  }

 private:
  // Ranks tell each other how many rows come to their experts; one that is alone supposes it.
  static void add_what_dry_ranks_know(const parallel::Site& site, Passes& passes) {
    const Strategy& s = site.strategy;
    const auto add = [&](Volumes& pass) {
      constexpr std::int64_t kWord = 8;
      if (s.ep > 1) add_to(pass[OperationKind::all_to_all], {1, site.shape.experts * kWord});
      if (s.tensor_split() > 1)
        add_to(pass[OperationKind::all_gather], {1, site.shape.experts / s.ep * s.tp * kWord});
    };
    if (site.shape.experts == 0) return;
    add(passes.forward);
    if (s.recompute == Recompute::full) add(passes.backward);
  }
  static void add_to(Volume& volume, const Volume& more) {
    volume.operations += more.operations;
    volume.bytes += more.bytes;
  }
  Volumes take() { return std::exchange(traffic_->by_kind, {}); }
  at::Tensor activation(const parallel::Site& site) const {
    return at::empty({parallel::count(site.narrow_tokens), site.samples, site.hidden()},
                     at::TensorOptions(numerics_.compute).device(at::kMeta));
  }
  // What a decoder's block looks at, and the gradient of what an encoder-decoder's embedding made.
  parallel::Side side_of(const parallel::Site& site) const {
    if (!site.beside) return {};
    return {.value = activation(*site.beside), .gradient = activation(*site.beside)};
  }
  parallel::Feed feed(const parallel::Site& site) const {
    parallel::Feed feed;
    if (site.shape.patch_inputs > 0)
      feed.patches =
          at::empty({parallel::count(site.narrow_tokens), site.samples, site.shape.patch_inputs},
                    at::TensorOptions(numerics_.compute).device(at::kMeta));
    const auto ids = [](const parallel::Site& of) {
      return at::empty({parallel::count(of.inner_tokens()), of.samples},
                       at::TensorOptions(at::kLong).device(at::kMeta));
    };
    feed.ids = feed.labels = ids(site);
    if (site.beside) feed.decoder_ids = ids(*site.beside);
    return feed;
  }

  const std::shared_ptr<comm::Traffic> traffic_ = std::make_shared<comm::Traffic>();
  parallel::Numerics numerics_;
  std::unique_ptr<comm::Group> world_;
  parallel::Groups groups_;
  models::RankModel model_;
};

// What the planner charges for the same, of one kind, under a price.
struct Charge {
  double forward = 0, backward = 0, end = 0;
};

Charge charged(const Plan& plan, int stage, int type, const Strategy& strategy, Collective op,
               Price price) {
  const Profile profile = priced_profile(plan.model, op, price);
  const BraidModel cost(plan.model, plan.cluster, &profile,
                        {.precision = plan.precision,
                         .gradient_precision = plan.gradient_precision,
                         .assumptions = {}});
  StageSite site = site_of(plan, stage);
  site.shape.micro_batches = std::max(2, site.shape.micro_batches);  // one of several
  const LayerTime t = cost.layer(type, strategy, site).time;
  return {t.forward_tensor + t.forward_context + t.forward_expert + t.forward_gather,
          t.backward_tensor + t.backward_context + t.backward_expert + t.backward_gather,
          t.reduce + t.regather};
}

// ZeRO pads a buffer to a multiple of its replicas: fewer elements than there are ranks.
constexpr double kPadding = 8 * 4;

void expect_same(const char* pass, OperationKind kind, const Volume& played, double operations,
                 double bytes) {
  EXPECT_EQ(static_cast<double>(played.operations), operations)
      << pass << ": how many of " << comm::name_of(kind);
  EXPECT_NEAR(static_cast<double>(played.bytes), bytes, kPadding * operations)
      << pass << ": bytes of " << comm::name_of(kind);
}

void expect_charged(const Plan& plan, int stage, int local, std::set<std::string>& seen) {
  LonelyRank rank(plan, parallel::device_at(stage, local, plan.mesh()));
  const StagePlan& layers = plan.stages[static_cast<std::size_t>(stage)];
  const std::vector<int> indices = layers_of(layers);
  ASSERT_EQ(indices.size(), rank.num_layers());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const int type = plan.model.layers[static_cast<std::size_t>(indices[i])];
    const Strategy& strategy = layers.strategies[i];
    const LayerShape& shape = plan.model.types[static_cast<std::size_t>(type)].shape;
    SCOPED_TRACE(plan.model.name + " " + name_of(shape.kind) + ", " + to_string(strategy) + ", " +
                 name_of(plan.precision));
    const Passes passes = rank.play(i);
    for (const auto& [kind, op] : kKinds) {
      // Rows of a published square redistribute in turn, and all are charged for what one does.
      if (kind == OperationKind::message && strategy.variant == SquareVariant::paper) continue;
      const Charge calls = charged(plan, stage, type, strategy, op, {.call = 1});
      const Charge bytes = charged(plan, stage, type, strategy, op, {.byte = 1});
      const auto of = [&kind = kind](const Volumes& volumes) {
        const auto found = volumes.find(kind);
        return found == volumes.end() ? Volume{} : found->second;
      };
      expect_same("forward", kind, of(passes.forward), calls.forward, bytes.forward);
      expect_same("backward", kind, of(passes.backward), calls.backward, bytes.backward);
      if (of(passes.forward).operations + of(passes.backward).operations > 0)
        seen.insert(name_of(shape.kind) + " " + comm::name_of(kind));
      if (kind == OperationKind::message) continue;  // of a tied matrix: told below
      Volume end = of(passes.end);
      if (kind == OperationKind::all_reduce) {
        const Volume shared = rank.sums_of_shared(i);
        end.operations -= shared.operations;
        end.bytes -= shared.bytes;
      }
      expect_same("end", kind, end, calls.end, bytes.end);
      if (end.operations > 0) seen.insert(std::string("end ") + comm::name_of(kind));
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Communication, IsChargedAsItIsDoneForRandomPlansOfEveryArchitecture) {
  const at::NoGradGuard no_grad;
  std::set<std::string> seen, squares;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Plan plan = PlanDice(seed).plan();
    plan.precision = seed % 2 == 0 ? Precision::bf16 : Precision::fp32;
    plan.gradient_precision = seed % 3 == 0 ? plan.precision : Precision::fp32;
    for (const std::string& square : squares_in(plan)) squares.insert(square);
    for (int stage = 0; stage < plan.shape.stages; ++stage) {
      expect_charged(plan, stage, plan.mesh().stage_devices() - 1, seen);
      if (HasFailure()) FAIL() << "seed " << seed;
    }
  }
  EXPECT_EQ(squares.size(), kAllSquares.size());
  for (const char* kind :
       {"block all_gather", "block reduce_scatter", "block all_to_all", "block message",
        "block all_reduce", "embedding all_gather", "embedding reduce_scatter", "head all_gather",
        "head reduce_scatter", "head all_reduce", "merge all_gather", "merge reduce_scatter",
        "merge all_to_all", "end all_reduce", "end all_gather", "end reduce_scatter"})
    EXPECT_TRUE(seen.contains(kind)) << kind << " was in no plan";
}

TEST(Communication, IsChargedAsItIsDoneInChunks) {
  const at::NoGradGuard no_grad;
  std::set<std::string> seen;
  for (const char* model : {"llama", "mixtral", "t5"})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const Strategy strategy{.tp = 2, .recompute = recompute};
      Plan plan = reference_plan(tiny_model(model, 2, 2048), 1);
      plan.precision = Precision::bf16;
      plan.cluster = tiny_cluster(2);
      for (std::size_t i = 1; i + 1 < plan.stages[0].strategies.size(); ++i)
        plan.stages[0].strategies[i] = strategy;
      plan.stages[0].strategies.front() = plan.stages[0].strategies.back() = {.tp = 2};
      ASSERT_EQ(token_chunks(strategy, plan.model.types[1].shape.tokens, 1), 2);
      expect_charged(plan, 0, 1, seen);
    }
  EXPECT_TRUE(seen.contains("block reduce_scatter"));
}

TEST(Communication, IsChargedAsItIsDoneInSquaresOfSixteen) {
  const at::NoGradGuard no_grad;
  std::set<std::string> seen;
  for (const char* model : {"gpt2", "llama", "qwen3"})
    for (const std::int64_t batch : {1, 4})
      for (const SquareVariant variant : {SquareVariant::plus_minus, SquareVariant::paper})
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          Plan plan = plan_of_sixteen(model, batch, variant, recompute);
          plan.precision = Precision::bf16;
          expect_charged(plan, 0, 6, seen);
        }
  EXPECT_TRUE(seen.contains("block message"));
}

// The rows of a published square take turns in redistributing: in all of them together each block
// goes once where the price has it, and no rank sends more.
TEST(Communication, PublishedSquaresSendNoMoreThanTheyAreChargedFor) {
  const at::NoGradGuard no_grad;
  const Plan plan = plan_of_sixteen("llama", 4, SquareVariant::paper, Recompute::none);
  const int type = plan.model.layers[1];
  const Strategy& strategy = plan.stages[0].strategies[1];
  const Charge bytes = charged(plan, 0, type, strategy, Collective::point_to_point, {.byte = 1});
  std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
  for (int device = 0; device < 16; ++device) {
    Passes passes = LonelyRank(plan, device).play(1);
    const std::int64_t sent = passes.forward[OperationKind::message].bytes +
                              passes.backward[OperationKind::message].bytes;
    least = std::min(least, sent);
    most = std::max(most, sent);
  }
  EXPECT_LT(least, most);
  EXPECT_LE(static_cast<double>(most), bytes.forward + bytes.backward);
  EXPECT_GT(static_cast<double>(most), 0.9 * (bytes.forward + bytes.backward));
}

// 61 rows of 32, on stages of two replicas: the head's ranks send fp32 gradients, the embedding's
// bf16 weights.
TEST(Communication, RowsOfATiedMatrixTravelBetweenStages) {
  const at::NoGradGuard no_grad;
  Plan plan = reference_plan(tiny_model("llama_tied", 2, 16), 4);
  plan.precision = Precision::bf16;
  plan.cluster = tiny_cluster(4);
  plan.shape.stages = 2;
  plan.stages = {{.chunks = {{0, 2}}, .strategies = {2, Strategy{.dp = 2}}},
                 {.chunks = {{2, 4}}, .strategies = {2, Strategy{.dp = 2}}}};
  constexpr std::int64_t kElements = 61 * 32;
  EXPECT_EQ(LonelyRank(plan, 0).tied_messages().bytes, 2 * kElements);
  EXPECT_EQ(LonelyRank(plan, 2).tied_messages().bytes, 4 * kElements);
  const int head = plan.model.layers.back();
  EXPECT_EQ(charged(plan, 1, head, {.dp = 2}, Collective::point_to_point, {.byte = 1}).end,
            (4 + 2) * kElements);
}

TEST(Communication, RowsOfATiedMatrixStayInAStageThatSplitsBothAlike) {
  const at::NoGradGuard no_grad;
  for (const Strategy& strategy : {Strategy{.dp = 4}, Strategy{.tp = 4},
                                   Strategy{.tp = 2, .dp = 2, .zero = Zero::optimizer}}) {
    Plan plan = reference_plan(tiny_model("llama_tied", 2, 16), 4);
    plan.cluster = tiny_cluster(4);
    plan.stages.front().strategies.assign(4, strategy);
    EXPECT_EQ(LonelyRank(plan, 1).tied_messages(), Volume());
    const int head = plan.model.layers.back();
    EXPECT_EQ(charged(plan, 0, head, strategy, Collective::point_to_point, {.call = 1}).end, 0);
  }
}

}  // namespace
}  // namespace braid
