// The kernel that looks up rows of a table, against the operators on the CPU.

#include <ATen/ops/randint.h>

#include "runtime/ops/embedding.h"
#include "runtime/ops/fused.h"
#include "tests/ops/cuda_cases.h"

namespace braid::ops {
namespace {

class CudaEmbedding : public KernelTest {};
BRAID_KERNEL_TYPES(CudaEmbedding);

TEST_P(CudaEmbedding, RowsAreTheTables) {
  constexpr std::int64_t kVocabulary = 40;
  struct Slice {
    std::int64_t first, rows;
  };
  // One column, rows that begin anywhere, whole packs, several of them a thread.
  for (const std::int64_t width : {1, 6, 8, 96, 4104}) {
    for (const Slice slice : {Slice{0, kVocabulary}, Slice{13, 20}}) {
      const at::Tensor table = random({slice.rows, width}, 1);
      const at::Tensor ids =
          at::randint(kVocabulary, {3, 17}, at::detail::createCPUGenerator(7), at::kLong)
              .to(device)
              .t();  // as samples lie that were read one after the other
      const auto rows = fused::embedding(ids, table, slice.first);
      ASSERT_TRUE(rows) << width;
      EXPECT_EQ(rows->sizes(), at::IntArrayRef({17, 3, width}));
      EXPECT_TRUE(identical(exact(*rows), embedding(ids.to(at::kCPU), exact(table), slice.first)))
          << width << " from " << slice.first;
    }
  }
}

}  // namespace
}  // namespace braid::ops
