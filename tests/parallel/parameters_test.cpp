#include "runtime/parallel/parameters.h"

#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include "runtime/comm/in_process.h"
#include "tests/parallel/sites.h"
#include "tests/support/tensors.h"

namespace braid::parallel {
namespace {

constexpr std::uint64_t kSeed = 42;

Model two_kv_heads() { return tiny_model("llama_tied", 1, 16); }

// Specs of every kind of cut; what tensor ranks cut is a multiple of eight.
std::vector<ParameterSpec> random_specs(std::mt19937_64& random) {
  const auto size = [&](std::int64_t unit) {
    return unit * (1 + static_cast<std::int64_t>(random() % 5));
  };
  std::vector<ParameterSpec> specs;
  const auto add = [&](std::vector<std::int64_t> shape, CutBy cut, int dim) {
    const Init init = random() % 4 == 0 ? Init::ones : Init::normal;
    specs.push_back({.name = "p" + std::to_string(specs.size()),
                     .shape = std::move(shape),
                     .cut = cut,
                     .cut_dim = dim,
                     .init = init,
                     .decays = random() % 2 == 0,
                     .expert = -1});
  };
  for (int i = 0; i < 8; ++i) switch (random() % 6) {
      case 0:
        add({size(3), size(1)}, CutBy::nothing, 0);
        break;
      case 1:
        add({size(8), size(3)}, CutBy::tensor, 0);
        break;
      case 2:
        add({size(3), size(8)}, CutBy::tensor, 1);
        break;
      case 3:
        add({size(8)}, CutBy::tensor, 0);
        break;
      case 4:
        add({size(2), size(3)}, CutBy::kv_heads, 0);
        break;
      case 5:
        add({size(1) + 8 * static_cast<std::int64_t>(random() % 8), size(2)}, CutBy::vocabulary, 0);
        break;
    }
  return specs;
}

std::vector<at::Tensor> whole_values(const std::vector<ParameterSpec>& specs) {
  std::vector<at::Tensor> values;
  comm::run_in_process(1, [&](comm::Group& world) {
    Groups groups(world);
    const Site site = block_site(two_kv_heads(), {}, groups);
    Parameters parameters("blocks.0", specs, site);
    parameters.initialise(kSeed);
    values = parameters.local_values();
  });
  return values;
}

TEST(Parameters, EveryCutStartsFromTheBitsOfOneRank) {
  std::mt19937_64 random(1);
  const Strategy strategies[] = {
      {.tp = 2},
      {.tp = 4},
      {.tp = 8},
      {.dp = 3, .zero = Zero::parameters},
      {.tp = 2, .dp = 2, .zero = Zero::parameters},
      {.tp = 4, .cp = 2, .zero = Zero::optimizer},
      {.tp = 2, .tp_kind = TensorKind::ulysses, .cp = 2, .zero = Zero::gradients},
  };
  for (const Strategy& strategy : strategies)
    for (const MeshOrder order : kMeshOrders) {
      const std::vector<ParameterSpec> specs = random_specs(random);
      const std::vector<at::Tensor> whole = whole_values(specs);
      comm::run_in_process(strategy.devices(), [&](comm::Group& world) {
        Groups groups(world);
        const Site site = block_site(two_kv_heads(), strategy, groups, order);
        Parameters parameters("blocks.0", specs, site);
        parameters.initialise(kSeed);
        const std::vector<at::Tensor> values = parameters.local_values();
        parameters.wait_weights();
        for (std::size_t i = 0; i < specs.size(); ++i) {
          const auto id = static_cast<Parameters::Id>(i);
          const LocalShape& local = parameters.local(id);
          const at::Tensor expected = local_slice(specs[i], local, whole[i]);
          EXPECT_TRUE(identical(values[i], expected)) << to_string(strategy) << ", " << i;
          const at::Tensor weight = parameters.weight(id);
          EXPECT_EQ(weight.sizes().vec(), local.shape);
          EXPECT_TRUE(identical(weight.narrow(specs[i].cut_dim, 0, local.real), expected));
          const std::int64_t padding =
              local.shape[static_cast<std::size_t>(specs[i].cut_dim)] - local.real;
          EXPECT_FALSE(
              weight.narrow(specs[i].cut_dim, local.real, padding).ne(0).any().item().toBool());
        }
      });
    }
}

TEST(Parameters, NormalValuesDifferFromNameToNameAndFromSeedToSeed) {
  comm::run_in_process(1, [](comm::Group& world) {
    Groups groups(world);
    const Site site = block_site(two_kv_heads(), {}, groups);
    const std::vector<ParameterSpec> specs = {{.name = "a", .shape = {64, 64}},
                                              {.name = "b", .shape = {64, 64}}};
    Parameters parameters("blocks.0", specs, site);
    parameters.initialise(1);
    const std::vector<at::Tensor> first = parameters.local_values();
    const at::Tensor a = first[0].clone();
    EXPECT_FALSE(a.equal(first[1]));
    EXPECT_NEAR(a.std().item().toDouble(), 0.02, 0.001);
    EXPECT_NEAR(a.mean().item().toDouble(), 0, 0.001);
    parameters.initialise(2);
    EXPECT_FALSE(a.equal(parameters.local_values()[0]));
  });
}

TEST(Parameters, SlicesAreThoseWorkedOutByHand) {
  struct Case {
    const char* fact;
    ParameterSpec spec;
    int tp, rank;
    std::vector<std::int64_t> shape;
    std::int64_t begin, real;
  };
  const auto spec = [](std::vector<std::int64_t> shape, CutBy cut, int dim = 0) {
    return ParameterSpec{.name = "p", .shape = std::move(shape), .cut = cut, .cut_dim = dim};
  };
  const Case cases[] = {
      {"norms are whole everywhere", spec({6}, CutBy::nothing), 4, 3, {6}, 0, 6},
      {"rows in blocks", spec({8, 3}, CutBy::tensor), 4, 3, {2, 3}, 6, 2},
      {"columns in blocks", spec({3, 8}, CutBy::tensor, 1), 2, 1, {3, 4}, 4, 4},
      {"61 rows over 4 are 16 each", spec({61, 2}, CutBy::vocabulary), 4, 1, {16, 2}, 16, 16},
      {"the last of which has 13", spec({61, 2}, CutBy::vocabulary), 4, 3, {16, 2}, 48, 13},
      {"of 5 rows over 4 the last has none", spec({5, 2}, CutBy::vocabulary), 4, 3, {2, 2}, 5, 0},
      {"two kv heads over two ranks", spec({8, 3}, CutBy::kv_heads), 2, 1, {4, 3}, 4, 4},
      {"two kv heads over eight ranks: four hold the first",
       spec({8, 3}, CutBy::kv_heads),
       8,
       3,
       {4, 3},
       0,
       4},
      {"and four the second", spec({8, 3}, CutBy::kv_heads), 8, 4, {4, 3}, 4, 4},
  };
  for (const Case& c : cases) {
    Site site;
    site.shape.kv_heads = 2;
    site.strategy.tp = c.tp;
    site.tensor_rank = site.outer_rank = c.rank;
    const LocalShape local = local_shape(c.spec, site);
    EXPECT_EQ(local.shape, c.shape) << c.fact;
    EXPECT_EQ(local.begin, c.begin) << c.fact;
    EXPECT_EQ(local.real, c.real) << c.fact;
  }
}

// Two squares of two by two; the rank in the second one's row 1 and column 0 stands on diagonal 1.
TEST(Parameters, ASquareHoldsBlocksOfMatricesWorkedOutByHand) {
  struct Case {
    const char* fact;
    ParameterSpec spec;
    std::vector<std::int64_t> shape;
    std::int64_t begin, across;
  };
  const Case cases[] = {
      {"heads of its column, channels of its diagonal",
       {.name = "q", .shape = {16, 6}, .cut = CutBy::tensor},
       {4, 3},
       8,
       3},
      {"an outward matrix the other way round",
       {.name = "out", .shape = {6, 16}, .cut = CutBy::tensor, .cut_dim = 1},
       {3, 4},
       8,
       3},
      {"key-value heads", {.name = "k", .shape = {8, 6}, .cut = CutBy::kv_heads}, {2, 3}, 4, 3},
      {"a bias of heads", {.name = "b", .shape = {16}, .cut = CutBy::tensor}, {4}, 8, 0},
      {"a norm", {.name = "n", .shape = {6}, .cut = CutBy::hidden}, {3}, 3, 0},
      {"a norm of heads", {.name = "h", .shape = {6}}, {6}, 0, 0},
  };
  Site site;
  site.shape.kv_heads = 4;
  site.strategy = {.tp = 8, .tp_kind = TensorKind::spatial_temporal, .square = 2};
  site.outer_rank = 1;
  site.row = 1;
  for (const Case& c : cases) {
    const LocalShape local = local_shape(c.spec, site);
    EXPECT_EQ(local.shape, c.shape) << c.fact;
    EXPECT_EQ(local.begin, c.begin) << c.fact;
    EXPECT_EQ(local.across, c.across) << c.fact;
  }
  site.strategy = {.tp = 4,
                   .tp_kind = TensorKind::spatial_temporal,
                   .square = 2,
                   .variant = SquareVariant::paper};
  site.outer_rank = 0;
  const LocalShape published = local_shape(cases[1].spec, site);
  EXPECT_EQ(published.begin, 8) << "its diagonal's columns";
  EXPECT_EQ(published.across, 0) << "its own column's rows";
}

TEST(Parameters, NeighboursAreOneMatrix) {
  comm::run_in_process(2, [](comm::Group& world) {
    Groups groups(world);
    const Site site = block_site(two_kv_heads(), {.tp = 2}, groups);
    Parameters::Declare declare(site);
    const Parameters::Id q = declare.add({.name = "q", .shape = {8, 3}, .cut = CutBy::tensor});
    declare.add({.name = "k", .shape = {4, 3}, .cut = CutBy::kv_heads});
    declare.add({.name = "v", .shape = {4, 3}, .cut = CutBy::kv_heads});
    const std::unique_ptr<Parameters> parameters = declare.make("blocks.0");
    parameters->initialise(kSeed);
    EXPECT_TRUE(identical(
        parameters->fused_weight(q, 3),
        at::cat({parameters->weight(q), parameters->weight(q + 1), parameters->weight(q + 2)})));
    parameters->begin_gradients();
    parameters->fused_gradient(q, 3).fill_(1);
    EXPECT_EQ(parameters->gradient(q + 2).sum().item().toDouble(), 2 * 3);
    parameters->end_gradients();
  });
}

}  // namespace
}  // namespace braid::parallel
