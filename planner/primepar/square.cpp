#include "planner/primepar/square.h"

#include <bit>

#include "planner/core/error.h"

namespace braid {

namespace {

int wrap_to(int index, int q) { return ((index % q) + q) % q; }

SquareIndex published(Phase phase, int q, int r, int c, int step) {
  const int last = step == q - 1 ? 1 : 0;
  switch (phase) {
    case Phase::forward:
      return {r, r + c + step, c};
    case Phase::backward:
      return {r, r + c - 1, c + step};
    case Phase::gradient:
      return {r + step, r + c - 1 + last, c - 1 + last};
  }
  return {};
}

// All phases start from the same home blocks and turn one index each.
SquareIndex homing(SquareIndex home, Phase phase, int step) {
  switch (phase) {
    case Phase::forward:
      return {home.m, home.n + step, home.k};
    case Phase::backward:
      return {home.m, home.n, home.k + step};
    case Phase::gradient:
      return {home.m + step, home.n, home.k};
  }
  return {};
}

std::vector<Transfer> published_transfers(Phase phase, int q, int step) {
  const bool last = step == q - 1;
  switch (phase) {
    case Phase::forward:
      if (last) return {};
      return {{Operand::input, 0, 1}, {Operand::weight, 1, 0}};
    case Phase::backward:  // the last step brings W back to where forward expects it
      if (last) return {{Operand::weight, 0, 1}};
      return {{Operand::output_gradient, 0, 1}, {Operand::weight, -1, 1}};
    case Phase::gradient:  // the sum moves once, so that it ends beside W
      if (last) return {{Operand::weight_gradient, 0, 1}};
      if (step == q - 2) return {{Operand::input, 1, 0}, {Operand::output_gradient, 1, 1}};
      return {{Operand::input, 1, -1}, {Operand::output_gradient, 1, 0}};
  }
  return {};
}

std::vector<Transfer> homing_transfers(bool plus, Phase phase, int q, int step) {
  if (step == q - 1) return {};
  switch (phase) {
    case Phase::forward:
      return {{Operand::input, 0, 1},
              plus ? Transfer{Operand::weight, 1, 0} : Transfer{Operand::weight, -1, 1}};
    case Phase::backward:
      return {{Operand::output_gradient, 0, 1},
              plus ? Transfer{Operand::weight, -1, 1} : Transfer{Operand::weight, 1, 0}};
    case Phase::gradient:
      return plus
                 ? std::vector<Transfer>{{Operand::input, 1, -1}, {Operand::output_gradient, 1, 0}}
                 : std::vector<Transfer>{{Operand::input, 1, 0}, {Operand::output_gradient, 1, -1}};
  }
  return {};
}

}  // namespace

SquareIndex square_index(Rotation rotation, Phase phase, int q, int r, int c, int step) {
  SquareIndex index;
  switch (rotation) {
    case Rotation::paper:
      index = published(phase, q, r, c, step);
      break;
    case Rotation::plus:
      index = homing({r, r + c, c}, phase, step);
      break;
    case Rotation::minus:
      index = homing({r, c, r + c}, phase, step);
      break;
  }
  return {wrap_to(index.m, q), wrap_to(index.n, q), wrap_to(index.k, q)};
}

SquarePlace place_in_square(int device, int bits, int first, int q) {
  SquarePlace place;
  const int levels = std::countr_zero(static_cast<unsigned>(q));
  for (int level = 0; level < levels; ++level) {
    const int r_bit = first + 2 * level;
    place.r = 2 * place.r + ((device >> (bits - 1 - r_bit)) & 1);
    place.c = 2 * place.c + ((device >> (bits - 2 - r_bit)) & 1);
  }
  return place;
}

std::vector<Transfer> transfers(Rotation rotation, Phase phase, int q, int step) {
  internal_check(step >= 0 && step < q, "a square has q steps");
  if (rotation == Rotation::paper) return published_transfers(phase, q, step);
  return homing_transfers(rotation == Rotation::plus, phase, q, step);
}

SliceIndex slice_index(const Partition& partition, int device, Phase phase, int step) {
  SliceIndex index{};
  const auto at = [&index](Dim dim) -> int& { return index[static_cast<std::size_t>(dim)]; };
  const int bits = partition.bits();
  int bit = 0;
  for (const Primitive& p : partition.sequence) {
    if (p.is_square()) {
      const SquarePlace place = place_in_square(device, bits, bit, p.q);
      const SquareIndex square = square_index(p.rotation, phase, p.q, place.r, place.c, step);
      at(p.dim) = p.q * at(p.dim) + square.m;
      at(Dim::inner) = p.q * at(Dim::inner) + square.n;
      at(Dim::columns) = p.q * at(Dim::columns) + square.k;
    } else {
      at(p.dim) = 2 * at(p.dim) + ((device >> (bits - 1 - bit)) & 1);
    }
    bit += p.bits();
  }
  return index;
}

}  // namespace braid
