#pragma once
// How one layer is split over the devices of its stage: a value, comparable, printable, hashable.

#include <compare>
#include <string>

#include "planner/model/layer.h"

namespace braid {

enum class TensorKind {
  megatron,          // comes with sequence parallelism
  ulysses,           // tokens for heads around attention
  spatial_temporal,  // a square of devices that pass blocks on between the steps of every product
};
// How the blocks of a square walk (PrimePar, ASPLOS 2024).
enum class SquareVariant {
  plus_minus,  // home blocks stay, copies walk; two mirrored forms take turns, so that nothing is
               // redistributed inside a layer
  paper,       // as published: one form, and a redistribution behind every product
};
enum class Zero { none, optimizer, gradients, parameters };

struct Strategy {
  int tp = 1;
  TensorKind tp_kind = TensorKind::megatron;
  int cp = 1;
  int dp = 1;
  Zero zero = Zero::none;
  int ep = 1;  // over the data-parallel devices
  Recompute recompute = Recompute::none;
  // Under spatial_temporal, square² of the tp devices form a square. The others cut heads and
  // feed-forward around it, as megatron does: a plain megatron is a square of one device.
  int square = 1;
  SquareVariant variant = SquareVariant::plus_minus;

  constexpr int devices() const { return tp * cp * dp; }
  // Devices that hold the same parameters and so sum their gradients.
  constexpr int replicas() const { return dp * cp * (tp_kind == TensorKind::ulysses ? tp : 1); }
  // Squares (devices, under megatron) among which heads and feed-forward columns are cut.
  constexpr int outer() const { return tp / (square * square); }
  // Ways in which heads and feed-forward columns are cut, and the hidden width.
  constexpr int tensor_split() const {
    return tp_kind == TensorKind::ulysses ? 1 : outer() * square;
  }
  constexpr int hidden_split() const { return square; }

  constexpr auto operator<=>(const Strategy&) const = default;
};

// Whether replicas have room for a layer's whole gradients in their group's memory from the first
// step to the last. Under ZeRO-2 and 3 a few layers' wholes take turns there, and what a rank keeps
// of them comes and goes; without replicas there is no group.
constexpr bool gradients_stay(const Strategy& s) {
  return s.replicas() > 1 && (s.zero == Zero::none || s.zero == Zero::optimizer);
}

// Whether the rows of a square share the samples of a micro-batch; otherwise they share the tokens.
constexpr bool rows_share_samples(const Strategy& s, std::int64_t micro_batch) {
  return micro_batch / s.dp % s.square == 0;
}

// How activations lie between layers: samples cut by dp, tokens by cp and then tp; those of a
// square also along the hidden width. Layers of equal layout need no redistribution.
struct ActivationLayout {
  int dp = 1, cp = 1, tp = 1, square = 1;
  constexpr auto operator<=>(const ActivationLayout&) const = default;
};
constexpr ActivationLayout layout_of(const Strategy& s) { return {s.dp, s.cp, s.tp, s.square}; }

std::string name_of(TensorKind kind);
std::string name_of(SquareVariant variant);
std::string name_of(Zero zero);
// "tp4 dp2 zero3 full", "ulysses8", "dp8 zero2", "st2x2", "tp2 st2x2.paper dp2"
std::string to_string(const Strategy& strategy);

}  // namespace braid
