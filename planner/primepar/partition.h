#pragma once
// How one operator is split over 2^n devices: a sequence of primitives that consume the bits of a
// device's id, the most significant first (PrimePar, ASPLOS 2024).

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace braid {

// Dimensions that a device bit can halve. A linear operator is O[B,M,K] = I[B,M,N] · W[N,K].
// `copies` cuts nothing: both halves of the devices hold the same.
enum class Dim : std::uint8_t { batch, rows, inner, columns, heads, keys, copies };
inline constexpr int kDims = 7;

// How the blocks of a square P move: as published, or in the mirrored pair that keeps every home
// block in place and circulates copies.
enum class Rotation : std::uint8_t { paper, plus, minus };

// A cut of one dimension in two by one device bit, or the square P of q × q devices, which takes
// 2·log2(q) bits, cuts rows, inner and columns q ways each, and works in q steps. Between operators
// the same square is the skewed layout in which device (r, c) holds rows r and columns r + c.
struct Primitive {
  Dim dim = Dim::batch;  // of a cut; of a square what its rows cut: tokens of a sample, or samples
  int q = 1;             // 1: a cut; 2, 4 or 8: a square
  Rotation rotation = Rotation::paper;

  bool is_square() const { return q > 1; }
  int bits() const;
  auto operator<=>(const Primitive&) const = default;
};

struct Partition {
  std::vector<Primitive> sequence;

  int bits() const;
  // log2 of the slices that a dimension has.
  int levels(Dim dim) const;
  const Primitive* square() const;  // none: nullptr
  int first_bit_of_square() const;
  // The bits (0 the most significant) at which ordinary cuts of `dim` stand.
  std::vector<int> cuts(Dim dim) const;
  // The bits that number the rows, or the columns, of the square's devices; without one none.
  std::vector<int> square_rows() const;
  std::vector<int> square_columns() const;

  auto operator<=>(const Partition&) const = default;
};

inline constexpr std::array kLinearDims = {Dim::batch, Dim::rows, Dim::inner, Dim::columns};
inline constexpr std::array kElementwiseDims = {Dim::batch, Dim::rows, Dim::columns};
inline constexpr std::array kAttentionDims = {Dim::batch, Dim::heads, Dim::rows, Dim::keys};
inline constexpr std::array kSoftmaxDims = {Dim::batch, Dim::heads, Dim::rows};

// Every sequence over `bits` device bits with at most so many squares. The search takes one: nested
// squares would add a dozen of 1300 states at 32 devices.
std::vector<Partition> partitions(int bits, std::span<const Dim> dims,
                                  std::span<const Rotation> rotations, int max_squares = 1);

// How Megatron leaves the residual stream, for elementwise operators: samples on the first bits,
// copies on the next ones, and the rest cut one way or as a square, straight or skewed.
std::vector<Partition> copied_partitions(int bits);

// The partition with its square's rows over samples in place of tokens.
Partition with_sample_rows(Partition partition);

// Letters as in the paper: B M N K of a linear operator, B S D of an elementwise one (R for
// copies), B H S T (query and key rows) in attention. A square is P2×2, or skew2×2 in an
// elementwise operator, with /B where its rows are samples.
enum class Letters { linear, elementwise, attention };
std::string text_of(const Partition& partition, Letters letters);  // {K, P2×2}

}  // namespace braid
