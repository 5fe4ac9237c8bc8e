// The steps of a square's products, from what its ranks send: every rank is played alone on tensors
// without memory, and the blocks are followed from home.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "runtime/comm/dry.h"
#include "runtime/parallel/square.h"
#include "tests/parallel/sites.h"

namespace braid::parallel {
namespace {

// What one rank exchanges, in order.
struct Exchange {
  struct Block {
    int to = 0, from = 0;
    std::int64_t elements = 0;
  };
  std::string name;
  std::vector<Block> blocks;
};
using Log = std::vector<Exchange>;

// A group without others that writes down its exchanges.
class Spy final : public comm::Group {
 public:
  Spy(int rank, int size, std::shared_ptr<Log> log) : Group(rank, size), log_(std::move(log)) {}

 protected:
  comm::Handle do_all_reduce(comm::Buffer, comm::Reduction, std::string_view) override {
    return {};
  }
  comm::Handle do_reduce_scatter(comm::ConstBuffer, comm::Buffer, comm::Reduction,
                                 std::string_view) override {
    return {};
  }
  comm::Handle do_all_gather(comm::ConstBuffer, comm::Buffer, std::string_view) override {
    return {};
  }
  comm::Handle do_all_to_all(comm::ConstBuffer, std::span<const std::int64_t>, comm::Buffer,
                             std::span<const std::int64_t>, std::string_view) override {
    return {};
  }
  comm::Handle do_broadcast(comm::Buffer, int, std::string_view) override { return {}; }
  comm::Handle do_exchange(std::span<const comm::Outgoing> out, std::span<const comm::Incoming> in,
                           std::string_view name) override {
    Exchange exchange{.name = std::string(name), .blocks = {}};
    for (std::size_t i = 0; i < out.size(); ++i)
      exchange.blocks.push_back({out[i].to, in[i].from, out[i].buffer.count});
    log_->push_back(exchange);
    return {};
  }
  void do_barrier(std::string_view) override {}
  std::unique_ptr<Group> do_subgroup(std::span<const int> members, std::string_view,
                                     comm::GroupUse) override {
    const auto place = std::ranges::find(members, rank()) - members.begin();
    return std::make_unique<Spy>(static_cast<int>(place), static_cast<int>(members.size()), log_);
  }
  void do_copy(comm::ConstBuffer, comm::Buffer) override {}

 private:
  std::shared_ptr<Log> log_;
};

constexpr std::int64_t kTokens = 32, kIn = 48, kOut = 80;  // of the whole product

enum class Phase { forward, input_gradient, weight_gradient };

// One phase of a product x [kTokens, kIn] · [kIn, kOut] on one rank, in fp32.
void play(comm::Group& world, int side, SquareVariant variant, Direction direction, Phase phase) {
  const at::NoGradGuard no_grad;
  Groups groups(world);
  const Strategy strategy{.tp = side * side,
                          .tp_kind = TensorKind::spatial_temporal,
                          .square = side,
                          .variant = variant};
  const Site site = block_site(tiny_model("llama", 1, 32), strategy, groups);
  const at::TensorOptions meta = at::TensorOptions(at::kFloat).device(at::kMeta);
  const at::Tensor x = at::empty({kTokens / side, 1, kIn / side}, meta);
  const at::Tensor dy = at::empty({kTokens / side, 1, kOut / side}, meta);
  const at::Tensor matrix = at::empty({kOut / side, kIn / side}, meta);
  switch (phase) {
    case Phase::forward:
      linear(x, matrix, {}, direction, site);
      break;
    case Phase::input_gradient:
      linear_input_gradient(dy, matrix, direction, site);
      break;
    case Phase::weight_gradient:
      add_weight_gradient({at::empty({kOut / side, kIn / side}, meta)}, dy, x, direction, site);
      break;
  }
}

Log play(int rank, int side, SquareVariant variant, Direction direction, Phase phase) {
  const auto log = std::make_shared<Log>();
  Spy world(rank, side * side, log);
  play(world, side, variant, direction, phase);
  return *log;
}

struct Case {
  int side;
  Direction direction;
};
class Steps : public testing::TestWithParam<Case> {
 protected:
  int side() const { return GetParam().side; }
  int wrap(int index) const { return (index % side() + side()) % side(); }
  int rank_at(int row, int column) const { return wrap(row) * side() + wrap(column); }

  // (m, n, k) of a rank's blocks at home.
  std::array<int, 3> home(int rank) const {
    const int r = rank / side(), c = rank % side();
    if (GetParam().direction == Direction::inward) return {r, wrap(r + c), c};
    return {r, c, wrap(r + c)};
  }

  // Follows both factors of a phase, given which of (m, n, k) each has.
  void follow(Phase phase, std::array<int, 2> first, std::array<int, 2> second, int summed) const {
    const int ranks = side() * side();
    using Block = std::array<int, 2>;
    std::array<std::vector<Block>, 2> blocks;
    std::vector<Log> logs;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = home(rank);
      const auto index = [&](int dim) { return at[static_cast<std::size_t>(dim)]; };
      blocks[0].push_back({index(first[0]), index(first[1])});
      blocks[1].push_back({index(second[0]), index(second[1])});
      logs.push_back(play(rank, side(), SquareVariant::plus_minus, GetParam().direction, phase));
      ASSERT_EQ(logs.back().size(), static_cast<std::size_t>(side() - 1));
    }
    const std::size_t in_first = first[0] == summed ? 0 : 1,
                      in_second = second[0] == summed ? 0 : 1;
    std::vector<std::set<int>> summed_so_far(static_cast<std::size_t>(ranks));
    for (int step = 0; step < side(); ++step) {
      for (std::size_t f = 0; f < 2; ++f) {
        const std::set<Block> distinct(blocks[f].begin(), blocks[f].end());
        EXPECT_EQ(distinct.size(), blocks[f].size()) << "factor " << f << " at step " << step;
      }
      for (std::size_t rank = 0; rank < blocks[0].size(); ++rank) {
        const auto at = home(static_cast<int>(rank));
        const Block &a = blocks[0][rank], &b = blocks[1][rank];
        EXPECT_EQ(a[in_first], b[in_second]) << "factors that do not meet at step " << step;
        EXPECT_EQ(a[1 - in_first], at[static_cast<std::size_t>(first[1 - in_first])]);
        EXPECT_EQ(b[1 - in_second], at[static_cast<std::size_t>(second[1 - in_second])]);
        summed_so_far[rank].insert(a[in_first]);
      }
      if (step + 1 == side()) break;
      std::array<std::vector<Block>, 2> moved = blocks;
      for (int rank = 0; rank < ranks; ++rank) {
        const Exchange& mine = logs[static_cast<std::size_t>(rank)][static_cast<std::size_t>(step)];
        ASSERT_EQ(mine.blocks.size(), 2U) << "both factors walk in one exchange";
        for (std::size_t f = 0; f < 2; ++f) {
          const int from = mine.blocks[f].from;
          const Exchange& theirs =
              logs[static_cast<std::size_t>(from)][static_cast<std::size_t>(step)];
          EXPECT_EQ(theirs.blocks[f].to, rank) << "a block that nobody sends";
          moved[f][static_cast<std::size_t>(rank)] = blocks[f][static_cast<std::size_t>(from)];
        }
      }
      blocks = std::move(moved);
    }
    for (const std::set<int>& all : summed_so_far)
      EXPECT_EQ(all.size(), static_cast<std::size_t>(side())) << "a summand is missing";
  }

  // The senders of a phase's two factors, as rows and columns further on.
  void expect_hops(Phase phase, std::pair<int, int> first, std::pair<int, int> second) const {
    for (int rank = 0; rank < side() * side(); ++rank)
      for (const Exchange& exchange :
           play(rank, side(), SquareVariant::plus_minus, GetParam().direction, phase)) {
        const int r = rank / side(), c = rank % side();
        EXPECT_EQ(exchange.blocks[0].from, rank_at(r + first.first, c + first.second));
        EXPECT_EQ(exchange.blocks[1].from, rank_at(r + second.first, c + second.second));
      }
  }
};

constexpr int kM = 0, kN = 1, kK = 2;

TEST_P(Steps, EachRankMeetsEverySummandOnceAndNoBlockIsInTwoPlaces) {
  follow(Phase::forward, {kM, kN}, {kN, kK}, kN);
  follow(Phase::input_gradient, {kM, kK}, {kN, kK}, kK);
  follow(Phase::weight_gradient, {kM, kN}, {kM, kK}, kM);
}

TEST_P(Steps, OnlyTheListedNeighboursTalk) {
  const bool inward = GetParam().direction == Direction::inward;
  const std::pair left{0, 1}, up{1, 0}, down_left{-1, 1}, up_right{1, -1};
  expect_hops(Phase::forward, left, inward ? up : down_left);
  expect_hops(Phase::input_gradient, left, inward ? down_left : up);
  expect_hops(Phase::weight_gradient, inward ? up_right : up, inward ? up : up_right);
}

std::int64_t sent(const Log& log, bool redistributed = false) {
  std::int64_t elements = 0;
  for (const Exchange& exchange : log)
    if ((exchange.name == "square redistribute") == redistributed)
      for (const Exchange::Block& block : exchange.blocks) elements += block.elements;
  return elements;
}

std::int64_t sent_by(int rank, const Case& c, SquareVariant variant) {
  std::int64_t elements = 0;
  for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient})
    elements += sent(play(rank, c.side, variant, c.direction, phase));
  return elements;
}

TEST_P(Steps, ElementsSentAreTheClosedForm) {
  const std::int64_t q = side();
  const std::int64_t pairs = kTokens * kIn + kTokens * kOut + kIn * kOut;
  for (int rank = 0; rank < q * q; ++rank) {
    EXPECT_EQ(sent_by(rank, GetParam(), SquareVariant::plus_minus) * q * q, 2 * (q - 1) * pairs);
    EXPECT_EQ(sent_by(rank, GetParam(), SquareVariant::paper) * q * q,
              2 * (q - 1) * pairs + 2 * kIn * kOut)
        << "the published form moves the matrix and its gradient once more";
  }
}

TEST_P(Steps, TheCommLayerCountsTheSame) {
  const std::int64_t q = side();
  const std::int64_t pairs = kTokens * kIn + kTokens * kOut + kIn * kOut;
  const auto traffic = std::make_shared<comm::Traffic>();
  const auto world = comm::dry_group(1, side() * side(), traffic);
  for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient})
    play(*world, side(), SquareVariant::plus_minus, GetParam().direction, phase);
  EXPECT_EQ(traffic->operations, 3 * (q - 1));
  EXPECT_EQ(traffic->bytes * q * q, 4 * 2 * (q - 1) * pairs);
  EXPECT_EQ(traffic->by_kind.size(), 1U) << "messages and nothing else";
}

TEST_P(Steps, OnlyThePublishedFormRedistributes) {
  for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient}) {
    std::int64_t mine = 0, published = 0;
    for (int rank = 0; rank < side() * side(); ++rank) {
      mine +=
          sent(play(rank, side(), SquareVariant::plus_minus, GetParam().direction, phase), true);
      published +=
          sent(play(rank, side(), SquareVariant::paper, GetParam().direction, phase), true);
    }
    EXPECT_EQ(mine, 0);
    // Behind an inward product only its input's gradient stands one column off.
    const bool outward = GetParam().direction == Direction::outward;
    EXPECT_EQ(published > 0, outward || phase == Phase::input_gradient);
  }
}

INSTANTIATE_TEST_SUITE_P(Squares, Steps,
                         testing::Values(Case{2, Direction::inward}, Case{2, Direction::outward},
                                         Case{4, Direction::inward}, Case{4, Direction::outward}),
                         [](const auto& test) {
                           const Case& c = test.param;
                           return std::string(c.direction == Direction::inward ? "inward"
                                                                               : "outward") +
                                  std::to_string(c.side);
                         });

}  // namespace
}  // namespace braid::parallel
