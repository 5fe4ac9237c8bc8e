#pragma once
// The index file of Megatron-LM's indexed dataset, version 1, little-endian and without padding:
//
//   9 bytes   "MMIDIDX" and two zeros
//   uint64    version, 1
//   uint8     code of the tokens' type: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 float64,
//             7 float32, 8 uint16
//   uint64    number of sequences, S
//   uint64    number of document boundaries, D: one more than documents
//   int32[S]  tokens of each sequence
//   int64[S]  byte of the data file at which each sequence starts
//   int64[D]  first sequence of each document; the last entry is S

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/checkpoint/mapped_file.h"

namespace braid::train {

enum class TokenType : std::uint8_t {
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  uint16 = 8,
};
std::int64_t bytes_of(TokenType type);

// Tokens of the stream that lie one behind the other in the data file. A file as Megatron writes it
// is one single run.
struct TokenRun {
  std::int64_t first_token = 0;  // of the stream
  std::int64_t first_byte = 0;   // of the data file
};

struct MegatronIndex {
  TokenType type = TokenType::uint8;
  std::int64_t tokens = 0, sequences = 0, documents = 0;
  std::vector<TokenRun> runs;  // ascending by first_token, never empty
};

// The document, from 0, that token `token` of the stream belongs to; nothing where the index does
// not tell. Reads the index up to there.
std::optional<std::int64_t> document_of(const checkpoint::MappedFile& index, std::int64_t token);

// Checks every entry; an Error names the file and the byte. `data_bytes`: size of the data file.
MegatronIndex read_megatron_index(const checkpoint::MappedFile& index, std::int64_t data_bytes);

}  // namespace braid::train
