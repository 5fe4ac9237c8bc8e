#include "runtime/comm/operation.h"

#include <fmt/core.h>

namespace braid::comm {

std::string name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::all_reduce:
      return "all_reduce";
    case OperationKind::reduce_scatter:
      return "reduce_scatter";
    case OperationKind::all_gather:
      return "all_gather";
    case OperationKind::all_to_all:
      return "all_to_all";
    case OperationKind::broadcast:
      return "broadcast";
    case OperationKind::barrier:
      return "barrier";
    case OperationKind::subgroup:
      return "subgroup";
    case OperationKind::message:
      return "message";
  }
  return {};
}

namespace {

std::string detail(const Operation& op) {
  const std::string elements = fmt::format("{} {}", op.count, name_of(op.type));
  switch (op.kind) {
    case OperationKind::all_reduce:
    case OperationKind::reduce_scatter:
      return fmt::format(": {} of {}", op.reduction == Reduction::sum ? "sum" : "maximum",
                         elements);
    case OperationKind::all_gather:
    case OperationKind::message:
      return ": " + elements;
    case OperationKind::all_to_all:
      return ": " + name_of(op.type);
    case OperationKind::broadcast:
      return fmt::format(": {} from the group's rank {}", elements, op.root);
    case OperationKind::barrier:
    case OperationKind::subgroup:
      return {};
  }
  return {};
}

}  // namespace

std::string describe(const Operation& op) {
  const std::string place = op.piece < 0 ? "" : fmt::format(", in piece {}", op.piece);
  return fmt::format("{} \"{}\" (number {} of group \"{}\"{}{})", name_of(op.kind), op.name,
                     op.number, op.group, detail(op), place);
}

std::string ranks_text(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const char* separator = i == 0 ? " " : i + 1 == ranks.size() ? " and " : ", ";
    text += fmt::format("{}{}", separator, ranks[i]);
  }
  return text;
}

std::string subgroup_name(std::string_view name, std::span<const int> ranks) {
  return fmt::format("{} of {}", name, ranks_text(ranks));
}

Mistake disagreement(int rank, const Operation& operation, int other_rank, const Operation& other) {
  return {.what = fmt::format("ranks disagree: rank {} is at {}, rank {} at {}", rank,
                              describe(operation), other_rank, describe(other)),
          .where = fmt::format("group \"{}\"", operation.group),
          .fix = "every rank of a group must call the same operations in the same order"};
}

Mistake block_disagreement(int sender, std::int64_t sent, int receiver, std::int64_t expected,
                           const Operation& operation) {
  return {
      .what = fmt::format("ranks disagree: rank {} sends {} elements, rank {} expects {}, in {}",
                          sender, sent, receiver, expected, describe(operation)),
      .where = fmt::format("group \"{}\"", operation.group),
      .fix = "the count that one rank sends must be the count that the other receives"};
}

Mistake absence(int rank, const Operation& operation, std::span<const int> missing,
                std::chrono::milliseconds timeout) {
  return {.what = fmt::format("rank {} waited {} ms for {} in {}", rank, timeout.count(),
                              ranks_text(missing), describe(operation)),
          .where = fmt::format("group \"{}\"", operation.group),
          .fix = "look at what that rank does instead; where it is only slow, raise the timeout"};
}

}  // namespace braid::comm
