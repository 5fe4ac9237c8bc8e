#include "runtime/parallel/ring.h"

#include <ATen/ops/zeros_like.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "runtime/comm/in_process.h"
#include "tests/parallel/random_layout.h"
#include "tests/parallel/sites.h"
#include "tests/support/tensors.h"

namespace braid::parallel {
namespace {

constexpr double kScale = 0.4, kTolerance = 1e-10;
constexpr std::int64_t kTokens = 32, kSamples = 2, kHeads = 8, kKvHeads = 4, kHeadDim = 4;

struct Inputs {
  at::Tensor q = random_tensor({kTokens, kSamples, kHeads, kHeadDim}, 1);
  at::Tensor k = random_tensor({kTokens, kSamples, kKvHeads, kHeadDim}, 2);
  at::Tensor v = random_tensor({kTokens, kSamples, kKvHeads, kHeadDim}, 3);
  at::Tensor dout = random_tensor({kTokens, kSamples, kHeads, kHeadDim}, 4);
};

Model attending(AttentionKind kind, std::int64_t window) {
  Model model = tiny_model("llama", 1, kTokens);
  for (LayerType& type : model.types) {
    if (type.shape.kind != LayerKind::block) continue;
    type.shape.attention = kind;
    type.shape.window = window;
  }
  return model;
}

TEST(Ring, EverySizeGivesTheAttentionOfTheWhole) {
  struct Case {
    const char* fact;
    AttentionKind kind;
    std::int64_t window;
  };
  const Case cases[] = {
      {"causal", AttentionKind::causal, 0},
      {"a window within a block", AttentionKind::causal, 2},
      {"a window across blocks", AttentionKind::causal, 11},
      {"all tokens see all", AttentionKind::bidirectional, 0},
  };
  const Inputs in;
  for (const Case& c : cases) {
    const ops::Visibility see{.causal = c.kind == AttentionKind::causal, .window = c.window};
    const ops::Attended whole = ops::attention(in.q, in.k, in.v, kScale, see);
    const ops::AttentionGradients expected =
        ops::attention_backward(in.dout, in.q, in.k, in.v, whole.out, whole.lse, kScale, see);
    for (const int cp : {1, 2, 4, 8})
      comm::run_in_process(cp, [&](comm::Group& world) {
        Groups groups(world);
        const Site site = block_site(attending(c.kind, c.window), {.cp = cp}, groups);
        const std::string where = fmt::format("{}: rank {} of {}", c.fact, world.rank(), cp);
        const auto mine = [&](const at::Tensor& x) { return take(x, 0, site.wide_tokens); };
        const at::Tensor q = mine(in.q), k = mine(in.k), v = mine(in.v);
        const ops::Attended got = ring_attention(q, k, v, kScale, site);
        EXPECT_TRUE(close(got.out, mine(whole.out), kTolerance)) << where;
        EXPECT_TRUE(close(got.lse, take(whole.lse, 2, site.wide_tokens), kTolerance)) << where;
        const ops::AttentionGradients gradients =
            ring_attention_backward(mine(in.dout), q, k, v, got.out, got.lse, kScale, site);
        EXPECT_TRUE(close(gradients.dq, mine(expected.dq), kTolerance)) << where;
        EXPECT_TRUE(close(gradients.dk, mine(expected.dk), kTolerance)) << where;
        EXPECT_TRUE(close(gradients.dv, mine(expected.dv), kTolerance)) << where;
      });
  }
}

// Each of the eight parts is rounded where it is made. Their sum is rounded once: it is what fp64
// makes of the same parts, but where fp32 falls on the other side of a tie.
TEST(Ring, ASumOverEightRanksIsRoundedToBf16Once) {
  constexpr int kRanks = 8;
  const Inputs in;
  const at::Tensor q = in.q.to(at::kBFloat16), k = in.k.to(at::kBFloat16),
                   v = in.v.to(at::kBFloat16);
  comm::run_in_process(kRanks, [&](comm::Group& world) {
    Groups groups(world);
    const Site site =
        block_site(attending(AttentionKind::bidirectional, 0), {.cp = kRanks}, groups);
    const auto mine = [&](const at::Tensor& x) { return take(x, 0, site.wide_tokens); };
    const ops::Attended got = ring_attention(mine(q), mine(k), mine(v), kScale, site);
    EXPECT_EQ(got.out.scalar_type(), at::kBFloat16);
    ops::Attended sum;
    for (int step = 0; step < kRanks; ++step) {
      const auto from = static_cast<std::size_t>((world.rank() - step + kRanks) % kRanks);
      for (const Segment& keys : site.ring_tokens[from]) {
        const auto theirs = [&](const at::Tensor& x) {
          return x.narrow(0, keys.begin, keys.size());
        };
        ops::Attended part =
            ops::attention(mine(q), theirs(k), theirs(v), kScale, {.causal = false});
        part = {part.out.to(at::kDouble), part.lse.to(at::kDouble)};
        sum = sum.out.defined() ? ops::merge(sum, part) : part;
      }
    }
    const at::Tensor once = sum.out.to(at::kBFloat16);
    const double differ = got.out.ne(once).to(at::kDouble).mean().item<double>();
    EXPECT_LT(differ, 0.01) << "rank " << world.rank();
  });
}

TEST(Ring, CausalRanksHaveEqualWork) {
  comm::run_in_process(4, [](comm::Group& world) {
    Groups groups(world);
    const Site site = block_site(attending(AttentionKind::causal, 0), {.cp = 4}, groups);
    std::int64_t seen = 0;  // pairs of a query and a key
    for (const Segment& s : site.wide_tokens)
      for (std::int64_t t = s.begin; t < s.end; ++t) seen += t + 1;
    EXPECT_EQ(seen, kTokens * (kTokens + 1) / 2 / 4);
  });
}

}  // namespace
}  // namespace braid::parallel
