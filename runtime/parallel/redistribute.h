#pragma once
// From one layout to any other. What travels follows from the two values: nothing, a slice, or one
// all-to-all in which every rank gets each element from one holder (or from all who hold a
// summand).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/group.h"
#include "runtime/parallel/layout.h"

namespace braid::parallel {

class Redistribution {
 public:
  // `extents` are the lengths of the cut dims (the first dims of the tensor) on all ranks together;
  // `group` holds the stage's ranks.
  Redistribution(const Layout& from, const Layout& to, const std::vector<std::int64_t>& extents,
                 comm::Group& group, std::string name);

  // Collective over the group, in the order of its other collectives.
  at::Tensor operator()(const at::Tensor& x) const;
  // Whether nothing has to be done at all.
  bool identity() const { return identity_; }
  // Elements of the cut dims that this rank sends to others.
  std::int64_t sent() const;

 private:
  // A box of the tensor: for each cut dim a run of local indices.
  struct Run {
    std::int64_t begin = 0, length = 0;
  };
  using Box = std::vector<Run>;
  struct Message {
    int peer = 0;
    std::vector<Box> boxes;
    std::int64_t elements = 0;
  };

  Message message(const std::vector<std::vector<Segment>>& mine,
                  const std::vector<std::vector<Segment>>& theirs, int peer) const;
  std::int64_t trailing(const at::Tensor& x) const;

  bool identity_ = false;
  bool moves_ = false;              // whether any rank sends to another
  std::vector<std::int64_t> held_;  // lengths of the cut dims after
  std::vector<Message> sends_, receives_;
  Message kept_from_, kept_to_;  // what stays on this rank, in both layouts
  comm::Group* group_;
  std::string name_;
};

}  // namespace braid::parallel
