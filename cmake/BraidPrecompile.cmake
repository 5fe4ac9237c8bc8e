# Precompiled headers: only what others wrote, which changes never and costs most. A file includes
# all it uses nevertheless: clang-tidy and -DBRAID_PCH=OFF read it without them.
option(BRAID_PCH "Precompile the headers of the standard library, ATen and GoogleTest" ON)

set(braid_std_headers
    <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <limits> <map> <memory>
    <numeric> <optional> <random> <set> <span> <string> <string_view> <tuple> <utility> <vector>
    <fmt/core.h>)
set(braid_torch_headers
    <ATen/core/Tensor.h> <ATen/core/grad_mode.h> <ATen/ops/arange.h> <ATen/ops/cat.h>
    <ATen/ops/empty.h> <ATen/ops/empty_like.h> <ATen/ops/full.h> <ATen/ops/mul.h> <ATen/ops/sub.h>
    <ATen/ops/sum.h> <ATen/ops/tensor.h> <ATen/ops/zeros.h> <ATen/ops/zeros_like.h>)

# braid_precompile(TARGET HEADER...): these and the standard library's.
function(braid_precompile name)
  if(BRAID_PCH)
    target_precompile_headers(${name} PRIVATE ${braid_std_headers} ${ARGN})
  endif()
endfunction()

# For a target with the options of another: its headers, made once.
function(braid_precompile_as name owner)
  if(BRAID_PCH)
    target_precompile_headers(${name} REUSE_FROM ${owner})
  endif()
endfunction()
