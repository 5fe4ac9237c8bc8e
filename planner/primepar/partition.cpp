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

  void extend(int bits_left, int squares_left) {
    if (bits_left == 0) {
      found.push_back(current);
      return;
    }
    for (const Dim dim : dims) with({.dim = dim}, bits_left, squares_left);
    if (squares_left == 0) return;
    for (const Rotation rotation : rotations)
      for (int k = 1; 2 * k <= bits_left; ++k)
        with({.dim = Dim::rows, .q = 1 << k, .rotation = rotation}, bits_left, squares_left - 1);
  }

  void with(Primitive primitive, int bits_left, int squares_left) {
    current.sequence.push_back(primitive);
    extend(bits_left - primitive.bits(), squares_left);
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
    case Dim::copies:
      return 'R';
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
                                  std::span<const Rotation> rotations, int max_squares) {
  internal_check(bits >= 0 && bits <= 6, "partitions are enumerated for up to 64 devices");
  Enumeration all{dims, rotations, {}, {}};
  all.extend(bits, max_squares);
  return std::move(all.found);
}

std::vector<Partition> copied_partitions(int bits) {
  std::vector<Partition> found;
  const auto run = [](Partition& p, int count, Dim dim) {
    for (int i = 0; i < count; ++i) p.sequence.push_back({.dim = dim});
  };
  for (int samples = 0; samples < bits; ++samples)
    for (int copies = 1; samples + copies <= bits; ++copies) {
      const int rest = bits - samples - copies;
      Partition head;
      run(head, samples, Dim::batch);
      run(head, copies, Dim::copies);
      if (rest == 0) {
        found.push_back(head);
        continue;
      }
      for (const Dim dim : kElementwiseDims) {
        Partition p = head;
        run(p, rest, dim);
        found.push_back(std::move(p));
      }
      if (rest % 2 != 0) continue;
      for (const Dim rows : {Dim::batch, Dim::rows}) {
        Partition straight = head;
        for (int i = 0; i < rest; i += 2) {
          run(straight, 1, rows);
          run(straight, 1, Dim::columns);
        }
        found.push_back(std::move(straight));
        Partition skewed = head;
        skewed.sequence.push_back({.dim = rows, .q = 1 << (rest / 2), .rotation = Rotation::minus});
        found.push_back(std::move(skewed));
      }
    }
  return found;
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
