// Which failures of cuDNN's attention hand the work to another kernel for good.

#include <gtest/gtest.h>

#include "runtime/ops/attention_kernels.h"

namespace braid::ops {
namespace {

TEST(CudnnAttention, OnlyWhatItDoesNotKnowIsLeftToOthers) {
  struct Case {
    const char* message;
    bool refusal;
  };
  const Case cases[] = {
      {"cuDNN Frontend error: [cudnn_frontend] Error: No valid execution plans built.", true},
      {"cuDNN Frontend error: CUDNN_STATUS_NOT_SUPPORTED", true},
      {"cuDNN attention: head dim 96 is not supported on sm_80", true},
      {"PyTorch was not compiled with cuDNN Flash Attention enabled!", true},
      {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free", false},
      {"CUDA error: an illegal memory access was encountered", false},
      {"cuDNN Frontend error: CUDNN_STATUS_EXECUTION_FAILED", false},
      {"cuDNN Frontend error: CUDNN_STATUS_ALLOC_FAILED", false},
      {"index 7 is out of bounds", false},
  };
  for (const Case& c : cases) EXPECT_EQ(is_cudnn_refusal(c.message), c.refusal) << c.message;
}

}  // namespace
}  // namespace braid::ops
