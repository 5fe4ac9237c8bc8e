#pragma once
// The output matrix of a model that uses its embedding table twice. On one device the head reads
// the table itself. On several the head holds a copy of its own rows, in its own layout: weights
// come from the embedding after each update, and the gradient goes back before it is reduced. Both
// travel between the same pairs of ranks.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/parallel/parameters.h"
#include "runtime/parallel/site.h"

namespace braid::parallel {

class TiedTable {
 public:
  TiedTable(const Plan& plan, int device, const Numerics& numerics, comm::Group& world);

  // The embedding's table on ranks that hold one.
  void attach(Parameters& embedding, Parameters::Id table);

  // Head side: [rows of this rank with padding, hidden].
  const at::Tensor& weight() const { return weight_; }
  const at::Tensor& gradient() const { return gradient_; }

  void send_weights();    // embedding → head, after an update
  void send_gradients();  // head → embedding, added to the embedding's gradient; then zero

  std::int64_t weight_bytes() const;
  std::int64_t gradient_bytes() const;

 private:
  // Rows that an embedding rank and a head rank both hold, counted within each one's part.
  struct Link {
    int peer = 0;
    std::int64_t embedding_row = 0, head_row = 0, rows = 0;
  };

  int device_;
  comm::Group* world_;
  std::vector<Link> to_head_, to_embedding_;  // of this rank as embedding, and as head
  Parameters* embedding_ = nullptr;
  Parameters::Id table_ = 0;
  at::Tensor weight_, gradient_;
};

}  // namespace braid::parallel
