#include "runtime/parallel/expert_dispatch.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "runtime/comm/dry.h"
#include "runtime/comm/in_process.h"
#include "tests/parallel/sites.h"
#include "tests/support/tensors.h"

namespace braid::parallel {
namespace {

constexpr std::int64_t kExperts = 4;

// What every rank of the world sends to every expert.
using Counts = std::vector<std::vector<std::int64_t>>;

// Rows ordered by expert, each labelled with where it comes from, which expert it wants, and which
// of the sender's rows for it it is.
at::Tensor labelled(int rank, std::int64_t expert, std::int64_t count) {
  at::Tensor rows = at::zeros({count, 3}, at::kDouble);
  for (std::int64_t i = 0; i < count; ++i) {
    rows[i][0] = rank;
    rows[i][1] = expert;
    rows[i][2] = i;
  }
  return rows;
}

at::Tensor rows_of(const Counts& counts, int rank) {
  std::vector<at::Tensor> rows;
  for (std::int64_t e = 0; e < kExperts; ++e)
    rows.push_back(
        labelled(rank, e, counts[static_cast<std::size_t>(rank)][static_cast<std::size_t>(e)]));
  return at::cat(rows);
}

// Rows of some ranks for this rank's experts, by expert and then by sender.
at::Tensor wanted(const Counts& counts, const Site& site, const std::vector<int>& senders) {
  std::vector<at::Tensor> rows = {at::zeros({0, 3}, at::kDouble)};
  const std::int64_t local = kExperts / site.strategy.ep;
  for (std::int64_t e = site.expert_rank * local; e < (site.expert_rank + 1) * local; ++e)
    for (const int rank : senders)
      rows.push_back(
          labelled(rank, e, counts[static_cast<std::size_t>(rank)][static_cast<std::size_t>(e)]));
  return at::cat(rows);
}

// Under Megatron's order of axes rank = data · tp + tensor.
void check(const Strategy& strategy, const Counts& counts, const std::string& fact) {
  comm::run_in_process(strategy.devices(), [&](comm::Group& world) {
    SCOPED_TRACE(fact + ", " + to_string(strategy));
    const int self = world.rank(), tp = strategy.tp;
    Groups groups(world);
    const Site site = block_site(tiny_model("mixtral", 1, 16), strategy, groups);
    const int first = site.data_rank / strategy.ep * strategy.ep;  // of its expert group
    std::vector<std::vector<int>> senders(static_cast<std::size_t>(tp));
    for (int t = 0; t < tp; ++t)
      for (int d = first; d < first + strategy.ep; ++d)
        senders[static_cast<std::size_t>(t)].push_back(d * tp + t);

    const ExpertDispatch fresh(counts[static_cast<std::size_t>(self)], site);
    const ExpertDispatch again = ExpertDispatch::again(fresh.route(), site);
    for (const ExpertDispatch* dispatch : {&fresh, &again}) {
      const at::Tensor mine = rows_of(counts, self);
      const at::Tensor arrived = dispatch->to_experts(mine);
      EXPECT_TRUE(identical(
          arrived, wanted(counts, site, senders[static_cast<std::size_t>(site.tensor_rank)])));
      EXPECT_TRUE(identical(dispatch->from_experts(arrived), mine));

      // Gathered rows are ordered by expert; within one by tensor rank and then by sender.
      std::vector<int> everyone;
      for (const auto& column : senders)
        everyone.insert(everyone.end(), column.begin(), column.end());
      const at::Tensor gathered = dispatch->gather(arrived);
      EXPECT_TRUE(identical(gathered, wanted(counts, site, everyone)));
      const std::vector<std::int64_t> rows = dispatch->rows_per_expert();
      std::int64_t begin = 0;
      for (std::size_t e = 0; e < rows.size(); ++e) {
        const std::int64_t expert =
            site.expert_rank * (kExperts / strategy.ep) + static_cast<std::int64_t>(e);
        EXPECT_TRUE(
            gathered.narrow(0, begin, rows[e]).select(1, 1).eq(expert).all().item().toBool());
        begin += rows[e];
      }
      EXPECT_EQ(begin, gathered.size(0));
      // All tensor ranks hold the same: each brings rank + 1 times it, and the sum comes back.
      const at::Tensor summed = dispatch->scatter_sum(gathered.mul(site.tensor_rank + 1));
      EXPECT_TRUE(identical(summed, arrived.mul(tp * (tp + 1) / 2)));
    }
  });
}

constexpr Strategy kStrategies[] = {
    {},
    {.dp = 2, .ep = 2},
    {.dp = 4, .ep = 4},
    {.dp = 4, .ep = 2},
    {.tp = 2},
    {.tp = 2, .dp = 2, .ep = 2},
    {.tp = 2, .dp = 4, .ep = 4},
    {.tp = 4, .dp = 2, .ep = 2},
};

TEST(ExpertDispatch, RowsComeToTheirExpertAndBack) {
  std::mt19937_64 random(5);
  for (const Strategy& strategy : kStrategies) {
    Counts counts(static_cast<std::size_t>(strategy.devices()));
    for (auto& row : counts)
      for (std::int64_t e = 0; e < kExperts; ++e)
        row.push_back(static_cast<std::int64_t>(random() % 6));
    check(strategy, counts, "random");
  }
}

TEST(ExpertDispatch, ExpertsAndRanksMayHaveNoRows) {
  for (const Strategy& strategy : kStrategies) {
    const auto ranks = static_cast<std::size_t>(strategy.devices());
    check(strategy, Counts(ranks, {0, 0, 7, 0}), "one expert has all");
    check(strategy, Counts(ranks, {0, 0, 0, 0}), "nobody has any");
    Counts lone(ranks, {0, 0, 0, 0});
    lone.back() = {3, 0, 1, 2};
    check(strategy, lone, "one rank has all");
  }
}

// A rank that is played dry takes itself for all of its group. Where the experts do not divide the
// rows, what it receives from itself is still what it sends to itself.
TEST(ExpertDispatch, ADryRankRoutesRowsThatExpertsDoNotDivide) {
  const std::vector<std::int64_t> counts = {3, 2, 1, 4};
  for (const Strategy& strategy : kStrategies)
    for (int rank = 0; rank < strategy.devices(); ++rank) {
      SCOPED_TRACE(to_string(strategy) + ", rank " + std::to_string(rank));
      const auto world = comm::dry_group(rank, strategy.devices());
      Groups groups(*world);
      Site site = block_site(tiny_model("mixtral", 1, 16), strategy, groups);
      site.numerics.device = at::kMeta;
      const ExpertDispatch dispatch(counts, site);
      const at::Tensor rows = at::empty({10, 3}, at::TensorOptions(at::kDouble).device(at::kMeta));
      const at::Tensor arrived = dispatch.to_experts(rows);
      std::int64_t own = 0;
      for (std::int64_t e = 0, local = kExperts / strategy.ep; e < local; ++e)
        own += counts[static_cast<std::size_t>(site.expert_rank * local + e)];
      EXPECT_EQ(arrived.size(0), strategy.ep * own);
      EXPECT_EQ(dispatch.gather(arrived).size(0), strategy.ep * own * strategy.tp);
      EXPECT_EQ(dispatch.from_experts(arrived).size(0), rows.size(0));
    }
}

}  // namespace
}  // namespace braid::parallel
