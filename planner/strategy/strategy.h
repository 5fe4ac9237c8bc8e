#pragma once
// How one layer is split over the devices of its stage: a value, comparable, printable, hashable.

#include <compare>
#include <string>

#include "planner/model/layer.h"

namespace braid {

enum class TensorKind { megatron, ulysses };  // megatron comes with sequence parallelism
enum class Zero { none, optimizer, gradients, parameters };

struct Strategy {
  int tp = 1;
  TensorKind tp_kind = TensorKind::megatron;
  int cp = 1;
  int dp = 1;
  Zero zero = Zero::none;
  int ep = 1;  // over the data-parallel devices
  Recompute recompute = Recompute::none;

  constexpr int devices() const { return tp * cp * dp; }
  // Devices that hold the same parameters and so sum their gradients.
  constexpr int replicas() const { return dp * cp * (tp_kind == TensorKind::ulysses ? tp : 1); }
  // Ways in which the layer's matrices are cut.
  constexpr int tensor_split() const { return tp_kind == TensorKind::megatron ? tp : 1; }

  constexpr auto operator<=>(const Strategy&) const = default;
};

// How activations lie between layers: samples cut by dp, tokens by cp and then tp. Layers of equal
// layout need no redistribution.
struct ActivationLayout {
  int dp = 1, cp = 1, tp = 1;
  constexpr auto operator<=>(const ActivationLayout&) const = default;
};
constexpr ActivationLayout layout_of(const Strategy& s) { return {s.dp, s.cp, s.tp}; }

std::string name_of(TensorKind kind);
std::string name_of(Zero zero);
// "tp4 dp2 zero3 full", "ulysses8", "dp8 zero2"
std::string to_string(const Strategy& strategy);

}  // namespace braid
