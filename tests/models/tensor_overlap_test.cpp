// The order in which a block under megatron begins collectives, waits for them and multiplies: what
// stands between the beginning and the wait runs beside the collective.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "runtime/comm/dry.h"
#include "runtime/models/model.h"
#include "runtime/ops/timed.h"
#include "tests/support/random_plan.h"

namespace braid {
namespace {

using ops::Timed;

constexpr std::string_view kGather = "gather", kGathered = "gathered";
constexpr std::string_view kScatter = "scatter", kScattered = "scattered";
constexpr std::string_view kBefore = "before";

// Leaves a range where an operation is waited for.
class Waiting final : public comm::Pending {
 public:
  explicit Waiting(std::string_view name) : name_(name) {}
  void wait() override { const Timed timed(name_); }

 private:
  std::string_view name_;
};

// A rank that is alone with its echo, and leaves a range where a collective begins.
class WatchedGroup final : public comm::Group {
 public:
  WatchedGroup(int rank, int size) : Group(rank, size), echo_(comm::echo_group(rank, size)) {}

 protected:
  comm::Handle do_all_reduce(comm::Buffer b, comm::Reduction r, std::string_view n) override {
    return echo_->all_reduce(b, r, n);
  }
  comm::Handle do_reduce_scatter(comm::ConstBuffer in, comm::Buffer out, comm::Reduction r,
                                 std::string_view n) override {
    const Timed timed(kScatter);
    echo_->reduce_scatter(in, out, r, n).wait();
    return comm::Handle(std::make_unique<Waiting>(kScattered));
  }
  comm::Handle do_all_gather(comm::ConstBuffer in, comm::Buffer out, std::string_view n) override {
    const Timed timed(kGather);
    echo_->all_gather(in, out, n).wait();
    return comm::Handle(std::make_unique<Waiting>(kGathered));
  }
  comm::Handle do_all_to_all(comm::ConstBuffer in, std::span<const std::int64_t> to,
                             comm::Buffer out, std::span<const std::int64_t> from,
                             std::string_view n) override {
    return echo_->all_to_all(in, to, out, from, n);
  }
  comm::Handle do_broadcast(comm::Buffer b, int root, std::string_view n) override {
    return echo_->broadcast(b, root, n);
  }
  comm::Handle do_exchange(std::span<const comm::Outgoing> out, std::span<const comm::Incoming> in,
                           std::string_view n) override {
    return echo_->exchange(out, in, n);
  }
  void do_barrier(std::string_view) override {}
  std::unique_ptr<comm::Group> do_subgroup(std::span<const int> members, std::string_view,
                                           comm::GroupUse) override {
    const auto place = std::ranges::find(members, rank()) - members.begin();
    return std::make_unique<WatchedGroup>(static_cast<int>(place),
                                          static_cast<int>(members.size()));
  }
  void do_copy(comm::ConstBuffer, comm::Buffer) override {}

 private:
  std::unique_ptr<comm::Group> echo_;
};

// A letter for each: collectives begin small and are waited for in capitals.
std::string letters(const std::vector<ops::TimedRange>& ranges) {
  const std::map<std::string_view, char> known = {{kGather, 'g'},
                                                  {kGathered, 'G'},
                                                  {kScatter, 's'},
                                                  {kScattered, 'S'},
                                                  {ops::kForwardProduct, 'f'},
                                                  {ops::kInputProduct, 'i'},
                                                  {ops::kWeightProduct, 'w'},
                                                  {ops::kAttention, 'a'},
                                                  {ops::kAttentionBackward, 'b'},
                                                  {kBefore, '.'}};
  std::string text;
  for (const ops::TimedRange& range : ranges)
    if (const auto found = known.find(range.name); found != known.end()) text += found->second;
  return text;
}

class TensorOverlap : public testing::Test {
 protected:
  struct Order {
    std::string forward, backward, rest;
  };

  // The passes of one block; `work` has something to do already.
  static Order played(const Strategy& strategy, parallel::WeightWork work,
                      std::int64_t chunk_rows = 1) {
    const at::NoGradGuard no_grad;
    Plan plan = reference_plan(tiny_model("llama", 2, 16), 1);
    plan.cluster = tiny_cluster(strategy.devices());
    for (Strategy& s : plan.stages[0].strategies) s = strategy;
    parallel::Numerics numerics = parallel::fp64_numerics(at::kCPU);
    numerics.chunk_rows = chunk_rows;
    WatchedGroup world(0, strategy.devices());
    parallel::Groups groups(world);
    models::RankModel model = models::build(plan, 0, numerics, groups, {});
    parallel::Layer& block = *model.layers[1];
    block.parameters().initialise(1);
    block.parameters().wait_weights();
    block.parameters().begin_gradients();
    const parallel::Site& site = block.site();
    const at::Tensor x =
        at::ones({parallel::count(site.narrow_tokens), site.samples, site.hidden()}, at::kDouble);
    parallel::Saved saved;
    const auto watch = [&](auto pass) {
      ops::Timings timings(at::kCPU);
      pass();
      return letters(timings.ranges());
    };
    Order order;
    order.forward = watch([&] { block.forward(x, {}, saved); });
    work.later([] { const Timed timed(kBefore); });
    order.backward = watch([&] { block.backward(x, {}, saved, work); });
    EXPECT_EQ(saved.bytes(), 0) << "parts make room for those that come behind them";
    order.rest = watch([&] { work.run(); });
    return order;
  }
};

TEST_F(TensorOverlap, TokensPassInChunks) {
  const Order order = played({.tp = 2}, parallel::WeightWork::beside_communication());
  EXPECT_EQ(order.forward,
            "ggGfGf"  // a chunk is gathered beside the other one's product
            "a"       //
            "fsfsSS"  // a chunk is scattered beside the other one's product
            "ggGffsGffsSS");
}

TEST_F(TensorOverlap, WeightGradientsRunBesideCollectivesOfTheSamePass) {
  const Order order = played({.tp = 2}, parallel::WeightWork::beside_communication());
  EXPECT_EQ(order.backward,
            "gggg"    // the gradient, and the input behind it, ahead of any sum
            ".GGi"    // beside them: what the layer behind has left
            "isis"    //
            "wSS"     // the sum is scattered beside the outer matrix's gradient
            "gGGwGi"  // attention's gradient arrives beside the inner matrix's
            "gb"      // and its input beside the scores' gradient
            "isiswSS");
  EXPECT_EQ(order.rest, "Gw") << "of q, k and v: beside what the layer ahead begins with";
}

TEST_F(TensorOverlap, FewTokensPassInOne) {
  const Order order = played({.tp = 2}, parallel::WeightWork::beside_communication(), 512);
  EXPECT_EQ(order.forward, "gGfafsSgGffsS");
  EXPECT_EQ(order.backward, "gg.GiiswSgGwGigbiswS");
}

TEST_F(TensorOverlap, WeightGradientsThatWaitGatherBesideEachOther) {
  const Order order = played({.tp = 2}, parallel::WeightWork(), 512);
  EXPECT_EQ(order.backward, "gGiisSgGibisS") << "nothing else is there to compute";
  EXPECT_EQ(order.rest, "g.wGwgwGw") << "one is gathered beside the product ahead of it";
}

TEST_F(TensorOverlap, UlyssesAndSingleRanksDoAsTheyDid) {
  for (const Strategy& strategy : {Strategy{}, Strategy{.tp = 2, .tp_kind = TensorKind::ulysses}}) {
    const Order order = played(strategy, parallel::WeightWork::at_once());
    EXPECT_EQ(order.forward, "fafff");
    EXPECT_EQ(order.backward, "iwiwiwbiw") << to_string(strategy);
  }
}

}  // namespace
}  // namespace braid
