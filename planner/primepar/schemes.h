#pragma once
// What PrimePar is compared with: one layer under the usual schemes, on the same machine and by the
// same assumptions.

#include <string>
#include <vector>

#include "planner/primepar/optimize.h"

namespace braid {

enum class Scheme {
  megatron,           // tensor parallelism, replicated between its matrices
  megatron_sequence,  // with sequence parallelism there
  summa,              // 2D matrices on a square of devices
  zero3,              // data parallelism with everything sharded
};
inline constexpr Scheme kSchemes[] = {Scheme::megatron, Scheme::megatron_sequence, Scheme::summa,
                                      Scheme::zero3};
std::string name_of(Scheme scheme);

struct SchemePlan {
  Scheme scheme = Scheme::megatron;
  int data = 1;   // replicas of the model
  int inner = 1;  // devices that share a replica
  LayerTotals totals;
};

// Every split of the devices that the batch, the heads and the matrices allow.
std::vector<SchemePlan> scheme_plans(Scheme scheme, const PrimeparTask& task,
                                     const PrimeparMachine& machine);
// The fastest, or none.
const SchemePlan* fastest(const std::vector<SchemePlan>& plans);

}  // namespace braid
