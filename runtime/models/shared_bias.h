#pragma once
// The tables of relative positions that the blocks of a T5 share, wherever they are.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/models/relative_bias.h"
#include "runtime/parallel/parameters.h"

namespace braid::models {

// The two tables of an embedding and their copies, on one rank. Copies come from the rank of the
// first stage that has the same place in it, and their gradients go there.
class SharedBias {
 public:
  SharedBias(const Plan& plan, int device, const parallel::Numerics& numerics, comm::Group& world);

  // The embedding's: the encoder's table and, right behind it, the decoder's.
  void attach(parallel::Parameters& embedding, parallel::Parameters::Id tables);
  void add_block(RelativeBias& copy, bool of_decoder);

  void send_weights();    // after an update
  void send_gradients();  // added to the embedding's gradient; then zero

  std::int64_t weight_bytes() const;
  std::int64_t gradient_bytes() const;

 private:
  struct Copy {
    RelativeBias* bias = nullptr;
    bool of_decoder = false;
  };
  at::Tensor half(const at::Tensor& tables, const Copy& copy) const;

  comm::Group* world_;
  int source_ = 0;              // the device that this rank's copies come from
  std::vector<int> followers_;  // those whose copies come from this one; empty where it is none
  std::vector<std::int64_t> shape_;  // of both tables
  parallel::Numerics numerics_;
  std::vector<Copy> copies_;
  parallel::Parameters* embedding_ = nullptr;
  parallel::Parameters::Id tables_ = 0;
};

}  // namespace braid::models
