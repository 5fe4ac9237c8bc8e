#pragma once
// Collectives on tensors, along their first dim. A tensor without memory (device meta) passes
// through with the right shape, so that a rank can be played dry. The kind, and the layer if it is
// not the one at work, are for the recorder.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/plan/step_terms.h"
#include "runtime/comm/group.h"

namespace braid::parallel {

comm::Buffer buffer_of(const at::Tensor& tensor);  // contiguous

// Room for a whole that the group gathers or whose parts it sums up, where it does so fastest
// (comm::Group::allocate). Not filled. Of tensors that take turns, all ask for the room of the
// largest, in elements, and so find each other's.
at::Tensor empty_for(comm::Group& group, at::IntArrayRef sizes, const at::TensorOptions& options,
                     std::int64_t room = 0);

// A tensor on its way. Keeps what the operation reads and writes alive.
class [[nodiscard]] Arriving {
 public:
  Arriving() = default;
  explicit Arriving(at::Tensor ready) : result_(std::move(ready)) {}
  Arriving(comm::Handle handle, at::Tensor source, at::Tensor result)
      : handle_(std::move(handle)), source_(std::move(source)), result_(std::move(result)) {}

  bool valid() const { return result_.defined(); }
  at::Tensor wait();  // once

 private:
  comm::Handle handle_;
  at::Tensor source_, result_;
};

// [n, ..] → [n · size, ..], in the order of ranks.
Arriving start_all_gather(const at::Tensor& x, comm::Group& group, std::string_view name,
                          CommKind kind = CommKind::other, std::string_view layer = {});
// [n · size, ..] → [n, ..], summed.
Arriving start_reduce_scatter(const at::Tensor& x, comm::Group& group, std::string_view name,
                              CommKind kind = CommKind::other, std::string_view layer = {});
// The same into `out`, which is contiguous.
Arriving start_all_gather(const at::Tensor& x, const at::Tensor& out, comm::Group& group,
                          std::string_view name, CommKind kind, std::string_view layer = {});
Arriving start_reduce_scatter(const at::Tensor& x, const at::Tensor& out, comm::Group& group,
                              std::string_view name, CommKind kind, std::string_view layer = {});

at::Tensor all_gather(const at::Tensor& x, comm::Group& group, std::string_view name,
                      CommKind kind = CommKind::other);
at::Tensor reduce_scatter(const at::Tensor& x, comm::Group& group, std::string_view name,
                          CommKind kind = CommKind::other);
void all_reduce(const at::Tensor& x, comm::Group& group, std::string_view name,
                comm::Reduction reduction = comm::Reduction::sum, CommKind kind = CommKind::other);
// Rows [to_each[0] | to_each[1] | …] → rows [from_each[0] | …]. Empty counts: even blocks.
at::Tensor all_to_all(const at::Tensor& x, comm::Group& group, std::string_view name,
                      std::span<const std::int64_t> to_each = {},
                      std::span<const std::int64_t> from_each = {},
                      CommKind kind = CommKind::other);

// Each rank's word, in the order of ranks. `device`: whose memory the group communicates.
std::vector<std::int64_t> gather_words(std::int64_t mine, comm::Group& group, at::Device device,
                                       std::string_view name);
// The same of texts of any length.
std::vector<std::string> gather_texts(const std::string& mine, comm::Group& group,
                                      at::Device device, std::string_view name);

}  // namespace braid::parallel
