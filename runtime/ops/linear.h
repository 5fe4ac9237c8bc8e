#pragma once
// y = x·Wᵀ + b. Tensors may have any leading dims: x [.., in], W [out, in], y [.., out].

#include <ATen/core/Tensor.h>

namespace braid::ops {

// Something that is added to. `fresh`: it holds nothing yet, and what lies there is overwritten.
struct Sum {
  at::Tensor value;
  bool fresh = false;
};

// Other ranks compute on this process's GPU too. A product whose blocks need many processors at the
// same moment may then never find them, while all ranks wait for each other: from here on no
// product of bf16 or 8 bits does. To be called ahead of all products.
void share_processors();

// An undefined bias adds nothing.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
// The same into `out`. Where x or it has four dims, the first counts groups of rows that may lie
// apart: each is dense, and so is a tensor of fewer dims.
void linear_into(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weight,
                 const at::Tensor& bias = {});
// residual + x·Wᵀ + b, of residual's shape.
at::Tensor linear_onto(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias = {});
at::Tensor linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight);
// The same into `out`, of groups as well.
void linear_input_gradient_into(const at::Tensor& out, const at::Tensor& dy,
                                const at::Tensor& weight);
// What goes into a product and what comes out of it, each [groups, rows, width].
struct RowGroups {
  at::Tensor out, in;
};
RowGroups row_groups(const at::Tensor& out, const at::Tensor& in);
// sum [m, n] += left [m, k] · right [k, n] in the sum's own precision; an undefined sum begins as
// the product, in fp32 for bf16 factors.
void add_product(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right);
// sum + left · right, rounded once to the factors' type. The sum is used up.
at::Tensor last_product(at::Tensor& sum, const at::Tensor& left, const at::Tensor& right);
// gradient [out, in] += dyᵀ·x, summed in the gradient's own precision (fp32 under bf16).
void add_weight_gradient(const Sum& gradient, const at::Tensor& dy, const at::Tensor& x);
// sum [width] += rows [.., width] summed over their leading dims: the gradient of a bias.
void add_rows(const Sum& sum, const at::Tensor& rows);
at::Tensor sum_of_rows(const at::Tensor& rows);  // [width], in fp32 under bf16

}  // namespace braid::ops
