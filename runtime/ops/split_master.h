#pragma once
// An fp32 master weight as two halves of its bits: the bf16 weight that layers compute with, and
// the 16 bits that it lacks. Together they are the master exactly; beside a whole fp32 master they
// save two bytes a parameter.
//
// The bf16 half is the master rounded to the nearest, away from zero where two are as near: so the
// rest always fits 16 bits with a sign.

#include <ATen/core/Tensor.h>

namespace braid::ops {

// master fp32, weight bf16, low int16: all [n], the last two are written.
void split_master(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& low);
at::Tensor join_master(const at::Tensor& weight, const at::Tensor& low);

}  // namespace braid::ops
