#pragma once
// The fused kernels, on raw memory: no torch, no CUDA in this header. Matrices are dense and have
// their rows one after the other. A stream is the driver's handle.

#include <cstdint>

namespace braid::ops::kernels {

using Stream = void*;

// Which memory the kernels of this build reach.
enum class Reach { nothing, gpu, host };
Reach reach();

enum class Type { bf16, fp32 };  // of activations and weights; statistics and sums are fp32

// ---- embeddings

// out [tokens, width]: the rows of a table whose ids are from `first` on; zeros where it lacks one.
struct LookUp {
  Type type = Type::bf16;
  const void* table = nullptr;  // [rows, width]
  const std::int64_t* ids = nullptr;
  void* out = nullptr;
  std::int64_t tokens = 0, rows = 0, width = 0, first = 0;
};
void look_up(const LookUp& call, Stream stream);

// ---- norms over rows of `width`

// The longest row; `aligned`: rows begin at multiples of 16 bytes.
std::int64_t longest_norm(Type type, bool aligned);

struct NormForward {
  Type type = Type::bf16;
  const void* x = nullptr;
  const void* added = nullptr;  // x + added is normed, and left in `sum`; null: x alone
  void* sum = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;  // of a LayerNorm; may be null
  void* y = nullptr;
  float* statistics = nullptr;  // [rows, 1] 1/rms, or [rows, 2] mean and 1/sigma
  std::int64_t rows = 0, width = 0;
  float epsilon = 0;
};
void rms_norm(const NormForward& call, Stream stream);
void layer_norm(const NormForward& call, Stream stream);

struct NormBackward {
  Type type = Type::bf16;
  const void* dy = nullptr;
  const void* x = nullptr;
  const float* statistics = nullptr;
  const void* weight = nullptr;
  const void* residual = nullptr;  // a gradient that is added to dx; null: none
  void* dx = nullptr;              // may be `residual`, or `dy` where y is not
  void* y = nullptr;               // made again; null: not wanted; may be `dy`
  const void* bias = nullptr;      // of a LayerNorm's y; may be null
  // [norm_partials(rows, width), width], of a LayerNorm [.., 2·width]: rows that add up to the
  // gradient of the weight, and behind it that of the bias.
  float* partials = nullptr;
  std::int64_t rows = 0, width = 0;
};
std::int64_t norm_partials(std::int64_t rows, std::int64_t width);
void rms_norm_backward(const NormBackward& call, Stream stream);
void layer_norm_backward(const NormBackward& call, Stream stream);

// ---- activations

enum class Curve { gelu, gelu_tanh, silu };

struct Activate {
  Type type = Type::bf16;
  Curve curve = Curve::silu;
  bool gated = false;
  const void* x = nullptr;     // [rows, width], gated: [rows, 2·width], the gate's half first
  const void* bias = nullptr;  // of x's columns; null: none
  void* y = nullptr;           // [rows, width]
  std::int64_t rows = 0, width = 0;
};
void activate(const Activate& call, Stream stream);

// dx from dy. Makes y again where `call.y` is not null.
struct ActivateBackward {
  Activate call;  // its y may be `dy`
  const void* dy = nullptr;
  void* dx = nullptr;  // as x, and may be x
  // [activate_partials(call), columns of x]: rows that add up to what those of dx do; null: not
  // wanted.
  float* partials = nullptr;
};
std::int64_t activate_partials(const Activate& call);
void activate_backward(const ActivateBackward& call, Stream stream);

// ---- rotary positions

// Heads that lie in one tensor [tokens, batch, heads, head_dim] with these strides, in elements;
// the last dim is dense. `out` may be `in`.
struct RotaryPart {
  const void* in = nullptr;
  std::int64_t in_token = 0, in_batch = 0, in_head = 0;
  void* out = nullptr;
  std::int64_t out_token = 0, out_batch = 0, out_head = 0;
  std::int64_t heads = 0;
  bool turns = true;  // else copied
};
struct Rotary {
  static constexpr int kParts = 3;  // q, k, v
  Type type = Type::bf16;
  RotaryPart parts[kParts];
  const float* cos = nullptr;  // [tokens, head_dim / 2]
  const float* sin = nullptr;
  std::int64_t tokens = 0, batch = 0, head_dim = 0;
  bool back = false;  // turns the other way
  // [rotary_partials(call), all heads · head_dim]: rows that add up to what all tokens do; null:
  // not wanted.
  float* partials = nullptr;
};
std::int64_t rotary_partials(const Rotary& call);
void rotary(const Rotary& call, Stream stream);

// ---- cross-entropy

// logits [rows, width] are the vocabulary from `first` on; the columns from `real` on are padding.
struct Logits {
  Type type = Type::bf16;
  void* logits = nullptr;
  const std::int64_t* labels = nullptr;
  std::int64_t ignored = -100;  // label of a row that does not count
  std::int64_t rows = 0, width = 0, real = 0, first = 0;
};
// The losses [rows], and the logits overwritten by (softmax - one_hot) · scale.
void cross_entropy(const Logits& call, float scale, float* losses, Stream stream);
// A slice's largest logit [rows], and [rows, 2]: the sum of exp(logit - largest), the label's
// logit - largest (0 where the label is elsewhere).
void logits_statistics(const Logits& call, float* largest, float* sums, Stream stream);
// The second pass: overwrites the logits by their gradient, from largest and sums over all slices.
void logits_gradient(const Logits& call, float scale, const float* largest, const float* sums,
                     Stream stream);

// ---- sums

// out [width] += the sum of x's rows, or becomes it where it is fresh. `partials`:
// [column_partials(x), width] of fp32.
struct Columns {
  Type type = Type::bf16;
  const void* x = nullptr;
  std::int64_t rows = 0, width = 0;
};
struct ColumnTotals {
  Type type = Type::fp32;
  void* out = nullptr;
  bool fresh = false;
};
std::int64_t column_partials(const Columns& x);
void column_sum(const Columns& x, float* partials, const ColumnTotals& totals, Stream stream);
// partials [square_partials()]: their sum is that of x².
std::int64_t square_partials();
void square_sum(Type type, const void* x, std::int64_t elements, double* partials, Stream stream);

// ---- 8 bits

enum class Fp8 { e4m3, e5m2 };
// The most that a tensor is scaled by: it and its inverse are normal numbers of fp32. A tensor
// whose largest value asks for more uses the lower end of the format.
inline constexpr float kLargestFp8Factor = 0x1p120F;
// partials [absmax_partials(elements)]: the largest of them is that of |x|. x is aligned to 16
// bytes, and elements are a multiple of 16.
std::int64_t absmax_partials(std::int64_t elements);
void absmax(Type type, const void* x, std::int64_t elements, float* partials, Stream stream);
struct Quantise {
  Type type = Type::bf16;
  Fp8 format = Fp8::e4m3;
  const void* x = nullptr;  // [rows, width], both multiples of 16
  std::int64_t rows = 0, width = 0;
  const float* partials = nullptr;  // of absmax()
  std::int64_t num_partials = 0;
  bool turned = false;
  void* out = nullptr;     // [rows, width]; turned: [width, rows]
  float* scale = nullptr;  // one number: out times it is x
};
void quantise(const Quantise& call, Stream stream);

// ---- optimizer

// A run of elements from the end of the run before it.
struct DecayRun {
  std::int64_t end = 0;
  float decay = 0;  // weight decay
};
struct Adamw {
  static constexpr int kRuns = 32;
  float* master = nullptr;  // null: kept in the two halves below
  void* weight = nullptr;   // bf16: the upper half, rounded
  std::int16_t* low = nullptr;
  Type gradient_type = Type::fp32;
  const void* gradient = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  const float* scale = nullptr;  // of the gradient, in the kernels' memory; where it is not finite
                                 // nothing is changed
  // In the kernels' memory too: the learning rate, 1 - beta1^step, sqrt(1 - beta2^step).
  const float* pace = nullptr;
  std::int64_t elements = 0;
  DecayRun runs[kRuns];
  int num_runs = 0;
  float beta1 = 0, beta2 = 0, epsilon = 0;
};
void adamw(const Adamw& call, Stream stream);

}  // namespace braid::ops::kernels
