#include "planner/primepar/partition.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "planner/core/error.h"

namespace braid {

namespace {

int log2_of(int q) { return std::countr_zero(static_cast<unsigned>(q)); }

struct Enumeration {
  std::span<const Dim> dims;
  std::span<const Rotation> rotations;
  std::vector<Partition> found;
  Partition current;

  void extend(int bits_left, bool square_used) {
    if (bits_left == 0) {
      found.push_back(current);
      return;
    }
    for (const Dim dim : dims) with({.dim = dim}, bits_left, square_used);
    if (square_used) return;
    for (const Rotation rotation : rotations)
      for (int k = 1; 2 * k <= bits_left; ++k)
        with({.dim = Dim::rows, .q = 1 << k, .rotation = rotation}, bits_left, true);
  }

  void with(Primitive primitive, int bits_left, bool square_used) {
    current.sequence.push_back(primitive);
    extend(bits_left - primitive.bits(), square_used);
    current.sequence.pop_back();
  }
};

char letter(Dim dim, Letters letters) {
  switch (dim) {
    case Dim::batch:
      return 'B';
    case Dim::rows:
      return letters == Letters::linear ? 'M' : 'S';
    case Dim::inner:
      return 'N';
    case Dim::columns:
      return letters == Letters::linear ? 'K' : 'D';
    case Dim::heads:
      return 'H';
    case Dim::keys:
      return 'T';
  }
  return '?';
}

std::string_view sign(Rotation rotation) {
  switch (rotation) {
    case Rotation::paper:
      return "";
    case Rotation::plus:
      return "⁺";
    case Rotation::minus:
      return "⁻";
  }
  return "";
}

std::string square_text(const Primitive& p, Letters letters) {
  const char* rows = p.dim == Dim::batch ? "/B" : "";
  if (letters == Letters::elementwise) return fmt::format("skew{}×{}{}", p.q, p.q, rows);
  return fmt::format("P{}{}×{}{}", sign(p.rotation), p.q, p.q, rows);
}

}  // namespace

int Primitive::bits() const { return is_square() ? 2 * log2_of(q) : 1; }

int Partition::bits() const {
  int total = 0;
  for (const Primitive& p : sequence) total += p.bits();
  return total;
}

int Partition::levels(Dim dim) const {
  int total = 0;
  for (const Primitive& p : sequence) {
    const bool cuts_it =
        p.dim == dim || (p.is_square() && (dim == Dim::inner || dim == Dim::columns));
    if (cuts_it) total += log2_of(p.is_square() ? p.q : 2);
  }
  return total;
}

const Primitive* Partition::square() const {
  const auto found = std::ranges::find_if(sequence, &Primitive::is_square);
  return found == sequence.end() ? nullptr : &*found;
}

int Partition::first_bit_of_square() const {
  int bit = 0;
  for (const Primitive& p : sequence) {
    if (p.is_square()) return bit;
    bit += p.bits();
  }
  internal_failure("the partition has no square", std::source_location::current());
}

std::vector<int> Partition::cuts(Dim dim) const {
  std::vector<int> bits;
  int bit = 0;
  for (const Primitive& p : sequence) {
    if (!p.is_square() && p.dim == dim) bits.push_back(bit);
    bit += p.bits();
  }
  return bits;
}

std::vector<int> Partition::square_rows() const {
  std::vector<int> bits;
  const Primitive* p = square();
  if (p == nullptr) return bits;
  for (int i = 0; i < p->bits(); i += 2) bits.push_back(first_bit_of_square() + i);
  return bits;
}

std::vector<int> Partition::square_columns() const {
  std::vector<int> bits = square_rows();
  for (int& bit : bits) ++bit;
  return bits;
}

std::vector<Partition> partitions(int bits, std::span<const Dim> dims,
                                  std::span<const Rotation> rotations) {
  internal_check(bits >= 0 && bits <= 6, "partitions are enumerated for up to 64 devices");
  Enumeration all{dims, rotations, {}, {}};
  all.extend(bits, false);
  return std::move(all.found);
}

Partition with_sample_rows(Partition partition) {
  for (Primitive& p : partition.sequence)
    if (p.is_square()) p.dim = Dim::batch;
  return partition;
}

std::string text_of(const Partition& partition, Letters letters) {
  std::string text;
  for (const Primitive& p : partition.sequence) {
    if (!text.empty()) text += ", ";
    text += p.is_square() ? square_text(p, letters) : std::string(1, letter(p.dim, letters));
  }
  return "{" + text + "}";
}

}  // namespace braid
