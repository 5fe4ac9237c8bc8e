// Stands in for the kernels where CUDA is absent: they reach nothing, so that nobody calls them.

#include <source_location>

#include "planner/core/error.h"
#include "runtime/ops/cuda/kernels.h"

namespace braid::ops::kernels {

namespace {

[[noreturn]] void absent() {
  internal_failure("a build without CUDA has no kernels", std::source_location::current());
}

}  // namespace

Reach reach() { return Reach::nothing; }
void look_up(const LookUp&, Stream) { absent(); }
std::int64_t longest_norm(Type, bool) { absent(); }
void rms_norm(const NormForward&, Stream) { absent(); }
void layer_norm(const NormForward&, Stream) { absent(); }
std::int64_t norm_partials(std::int64_t, std::int64_t) { absent(); }
void rms_norm_backward(const NormBackward&, Stream) { absent(); }
void layer_norm_backward(const NormBackward&, Stream) { absent(); }
void activate(const Activate&, Stream) { absent(); }
std::int64_t activate_partials(const Activate&) { absent(); }
void activate_backward(const ActivateBackward&, Stream) { absent(); }
std::int64_t rotary_partials(const Rotary&) { absent(); }
void rotary(const Rotary&, Stream) { absent(); }
void cross_entropy(const Logits&, float, float*, Stream) { absent(); }
void logits_statistics(const Logits&, float*, float*, Stream) { absent(); }
void logits_gradient(const Logits&, float, const float*, const float*, Stream) { absent(); }
std::int64_t column_partials(const Columns&) { absent(); }
void column_sum(const Columns&, float*, const ColumnTotals&, Stream) { absent(); }
std::int64_t square_partials() { absent(); }
void square_sum(Type, const void*, std::int64_t, double*, Stream) { absent(); }
std::int64_t absmax_partials(std::int64_t) { absent(); }
void absmax(Type, const void*, std::int64_t, float*, Stream) { absent(); }
void quantise(const Quantise&, Stream) { absent(); }
void adamw(const Adamw&, Stream) { absent(); }

}  // namespace braid::ops::kernels
