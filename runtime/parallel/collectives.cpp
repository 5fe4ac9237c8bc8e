#include "runtime/parallel/collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "planner/core/error.h"
#include "runtime/parallel/recorder.h"

namespace braid::parallel {

namespace {

comm::DataType type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kLong:
      return comm::DataType::int64;
    case at::kDouble:
      return comm::DataType::fp64;
    case at::kFloat:
      return comm::DataType::fp32;
    case at::kBFloat16:
      return comm::DataType::bf16;
    default:
      internal_failure("a tensor of a type that does not travel", std::source_location::current());
  }
}

at::Tensor empty_rows(const at::Tensor& like, std::int64_t rows) {
  std::vector<std::int64_t> shape = like.sizes().vec();
  shape[0] = rows;
  return at::empty(shape, like.options());
}

}  // namespace

comm::Buffer buffer_of(const at::Tensor& tensor) {
  internal_check(tensor.is_contiguous(), "only contiguous tensors travel");
  void* data = tensor.is_meta() ? nullptr : tensor.data_ptr();
  return {data, tensor.numel(), type_of(tensor)};
}

at::Tensor empty_for(comm::Group& group, at::IntArrayRef sizes, const at::TensorOptions& options,
                     std::int64_t room) {
  const auto plain = [&] { return at::empty(sizes, options); };
  if (options.device().is_meta()) return plain();
  const auto element = static_cast<std::int64_t>(options.dtype().itemsize());
  std::shared_ptr<void> memory =
      group.allocate(std::max(room, c10::multiply_integers(sizes)) * element);
  if (memory == nullptr) return plain();
  void* first = memory.get();
  return at::from_blob(
      first, sizes, [memory = std::move(memory)](void*) {}, options);
}

at::Tensor Arriving::wait() {
  handle_.wait();
  source_.reset();
  return std::exchange(result_, {});
}

Arriving start_all_gather(const at::Tensor& x, const at::Tensor& out, comm::Group& group,
                          std::string_view name, CommKind kind, std::string_view layer) {
  const at::Tensor in = x.contiguous();
  comm::Handle handle = communicate({.kind = kind, .operation = name, .layer = layer}, [&] {
    return group.all_gather(buffer_of(in), buffer_of(out), name);
  });
  return {std::move(handle), in, out};
}

Arriving start_reduce_scatter(const at::Tensor& x, const at::Tensor& out, comm::Group& group,
                              std::string_view name, CommKind kind, std::string_view layer) {
  const at::Tensor in = x.contiguous();
  internal_check(in.size(0) % group.size() == 0, "the ranks share the rows evenly");
  comm::Handle handle = communicate({.kind = kind, .operation = name, .layer = layer}, [&] {
    return group.reduce_scatter(buffer_of(in), buffer_of(out), comm::Reduction::sum, name);
  });
  return {std::move(handle), in, out};
}

Arriving start_all_gather(const at::Tensor& x, comm::Group& group, std::string_view name,
                          CommKind kind, std::string_view layer) {
  if (group.size() == 1) return Arriving(x);
  return start_all_gather(x, empty_rows(x, x.size(0) * group.size()), group, name, kind, layer);
}

Arriving start_reduce_scatter(const at::Tensor& x, comm::Group& group, std::string_view name,
                              CommKind kind, std::string_view layer) {
  if (group.size() == 1) return Arriving(x);
  return start_reduce_scatter(x, empty_rows(x, x.size(0) / group.size()), group, name, kind, layer);
}

at::Tensor all_gather(const at::Tensor& x, comm::Group& group, std::string_view name,
                      CommKind kind) {
  return start_all_gather(x, group, name, kind).wait();
}

at::Tensor reduce_scatter(const at::Tensor& x, comm::Group& group, std::string_view name,
                          CommKind kind) {
  return start_reduce_scatter(x, group, name, kind).wait();
}

void all_reduce(const at::Tensor& x, comm::Group& group, std::string_view name,
                comm::Reduction reduction, CommKind kind) {
  if (group.size() == 1) return;
  communicate({.kind = kind, .operation = name}, [&] {
    return group.all_reduce(buffer_of(x), reduction, name);
  }).wait();
}

at::Tensor all_to_all(const at::Tensor& x, comm::Group& group, std::string_view name,
                      std::span<const std::int64_t> to_each,
                      std::span<const std::int64_t> from_each, CommKind kind) {
  if (group.size() == 1) return x;
  const at::Tensor in = x.contiguous();
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::int64_t row = c10::multiply_integers(in.sizes().slice(1));
  const auto elements = [&](std::span<const std::int64_t> rows) {
    std::vector<std::int64_t> counts(ranks, in.size(0) / group.size() * row);
    for (std::size_t i = 0; i < rows.size(); ++i) counts[i] = rows[i] * row;
    return counts;
  };
  const std::int64_t received =
      from_each.empty() ? in.size(0)
                        : std::accumulate(from_each.begin(), from_each.end(), std::int64_t{0});
  at::Tensor out = empty_rows(in, received);
  communicate({.kind = kind, .operation = name}, [&] {
    return group.all_to_all(buffer_of(in), elements(to_each), buffer_of(out), elements(from_each),
                            name);
  }).wait();
  return out;
}

std::vector<std::int64_t> gather_words(std::int64_t mine, comm::Group& group, at::Device device,
                                       std::string_view name) {
  at::Tensor word = at::empty({1}, at::kLong);
  *word.data_ptr<std::int64_t>() = mine;
  const at::Tensor all = all_gather(word.to(device), group, name).to(at::kCPU);
  const auto* words = all.data_ptr<std::int64_t>();
  return {words, words + group.size()};
}

std::vector<std::string> gather_texts(const std::string& mine, comm::Group& group,
                                      at::Device device, std::string_view name) {
  const std::vector<std::int64_t> sizes = gather_words(std::ssize(mine), group, device, name);
  std::vector<std::string> texts(sizes.size());
  // As words, because bytes do not travel.
  const std::int64_t words = (std::ranges::max(sizes) + 7) / 8;
  if (words == 0) return texts;
  const at::Tensor padded = at::zeros({words}, at::kLong);
  std::memcpy(padded.data_ptr(), mine.data(), mine.size());
  const at::Tensor all = all_gather(padded.to(device), group, name).to(at::kCPU);
  const auto* from = static_cast<const char*>(all.const_data_ptr());
  for (std::size_t rank = 0; rank < texts.size(); ++rank, from += 8 * words)
    texts[rank].assign(from, static_cast<std::size_t>(sizes[rank]));
  return texts;
}

}  // namespace braid::parallel
