#pragma once
// What a rank says it is doing. Members of a group must say the same; where they do not, or where
// one is silent, these are the words.

#include <chrono>
#include <span>

#include "runtime/comm/group.h"

namespace braid::comm {

enum class OperationKind {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  barrier,
  subgroup,
  message
};
std::string name_of(OperationKind kind);

struct Operation {
  OperationKind kind = OperationKind::barrier;
  std::string name = {};
  std::string group = {};   // the group's name
  std::int64_t number = 0;  // of the group's collectives, or of the messages between two ranks
  DataType type = DataType::int64;
  std::int64_t count = 0;  // elements of one rank; 0 for an all-to-all, whose blocks differ
  Reduction reduction = Reduction::sum;
  int root = 0;
  int piece = -1;  // of the group's memory that the whole lies in; -1 for none

  bool operator==(const Operation&) const = default;
};

// As in: all_reduce "loss" (number 3 of group "world": sum of 8 fp32)
std::string describe(const Operation& operation);

// Ranks are those of the world: what a user sees in a log.
Mistake disagreement(int rank, const Operation& operation, int other_rank, const Operation& other);
Mistake block_disagreement(int sender, std::int64_t sent, int receiver, std::int64_t expected,
                           const Operation& operation);
Mistake absence(int rank, const Operation& operation, std::span<const int> missing,
                std::chrono::milliseconds timeout);

// Says who forms a group: "dp of ranks 0 and 2"
std::string subgroup_name(std::string_view name, std::span<const int> ranks);

// "rank 3", "ranks 1, 2 and 5"
std::string ranks_text(std::span<const int> ranks);

}  // namespace braid::comm
