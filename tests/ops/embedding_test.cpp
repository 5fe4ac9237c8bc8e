#include "runtime/ops/embedding.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "runtime/ops/autograd.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

// Repeated ids, the first and the last row, rows that nobody asks for.
at::Tensor some_ids(at::Device device) {
  return at::tensor({4, 0, 10, 4, 7, 7, 4, 1, 9, 10, 0, 3, 6, 4, 5}, at::kLong)
      .view({5, 3})
      .to(device);
}
constexpr std::int64_t kVocabulary = 11;

TEST(Embedding, ForwardAndGradientAreAutograds) {
  for (const at::Device device : test_devices()) {
    const at::Tensor ids = some_ids(device);
    const at::Tensor table = random_tensor({kVocabulary, 6}, 1, at::kDouble, device);
    const at::Tensor dy = random_tensor({5, 3, 6}, 2, at::kDouble, device);
    Recorded reference(
        [&](const std::vector<at::Tensor>& in) {
          return at::index_select(in[0], 0, ids.flatten()).view({5, 3, 6});
        },
        {table});
    EXPECT_TRUE(identical(embedding(ids, table), reference.output()));
    const at::Tensor before = random_tensor({kVocabulary, 6}, 3, at::kDouble, device);
    const at::Tensor gradient = before.clone();
    add_embedding_gradient(gradient, dy, ids);
    EXPECT_TRUE(close(gradient, before.add(reference.backward(dy)[0]), 1e-10));
  }
}

TEST(Embedding, SlicesOfTheTableSumToTheWhole) {
  for (const at::Device device : test_devices()) {
    const at::Tensor ids = some_ids(device);
    const at::Tensor table = random_tensor({kVocabulary, 6}, 1, at::kDouble, device);
    const at::Tensor dy = random_tensor({5, 3, 6}, 2, at::kDouble, device);
    const at::Tensor whole = at::zeros_like(table);
    add_embedding_gradient(whole, dy, ids);
    for (const std::int64_t width : {1, 4, 6}) {
      at::Tensor sum = at::zeros_like(dy);
      for (std::int64_t first = 0; first < kVocabulary; first += width) {
        const std::int64_t rows = std::min(width, kVocabulary - first);
        sum.add_(embedding(ids, table.narrow(0, first, rows), first));
        const at::Tensor gradient = at::zeros({rows, 6}, table.options());
        add_embedding_gradient(gradient, dy, ids, first);
        EXPECT_TRUE(identical(gradient, whole.narrow(0, first, rows))) << first << " of " << width;
      }
      EXPECT_TRUE(identical(sum, embedding(ids, table))) << width;
    }
  }
}

TEST(Embedding, IdsOutsideTheSliceGiveZerosAndNoGradient) {
  const at::Tensor table = random_tensor({3, 4}, 1);
  const at::Tensor ids = at::tensor({4, 8, 100, 0}, at::kLong);
  EXPECT_EQ(embedding(ids, table, 5).abs().max().item().toDouble(), 0);
  const at::Tensor gradient = at::zeros({3, 4}, at::kDouble);
  add_embedding_gradient(gradient, at::ones({4, 4}, at::kDouble), ids, 5);
  EXPECT_EQ(gradient.abs().max().item().toDouble(), 0);
}

TEST(Embedding, Bfloat16GradientsAreSummedInFloat) {
  for (const at::Device device : test_devices()) {
    const at::TensorOptions halves = at::TensorOptions(at::kBFloat16).device(device);
    const at::Tensor ids = at::zeros({4097}, halves.dtype(at::kLong));
    const at::Tensor gradient = at::zeros({2, 3}, halves.dtype(at::kFloat));
    add_embedding_gradient(gradient, at::ones({4097, 3}, halves), ids);
    EXPECT_TRUE(close(gradient[0], at::ones({3}).mul(4097), 0));  // bf16 cannot hold it
    EXPECT_EQ(gradient[1].abs().max().item().toDouble(), 0);
    EXPECT_EQ(embedding(ids, at::ones({2, 3}, halves)).scalar_type(), at::kBFloat16);
  }
}

}  // namespace
}  // namespace braid::ops
