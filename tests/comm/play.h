#pragma once
// Sequences of operations that any backend can play, and what they must give, worked out
// element by element. The programs under mpirun play them too.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/comm/operation.h"

namespace braid::comm {

using Raw = std::vector<std::byte>;

// One operation of some ranks of the world.
struct Step {
  OperationKind kind = OperationKind::all_reduce;
  DataType type = DataType::fp32;
  Reduction reduction = Reduction::sum;
  std::vector<int> members;                       // in the order of the subgroup
  int root = 0;                                   // of the subgroup
  std::int64_t count = 0;                         // elements of a block
  std::vector<std::vector<std::int64_t>> blocks;  // of an all-to-all: [from][to]
  std::uint64_t seed = 0;
};

inline std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

// Scrambles a number; a random engine for each element would take most of a test's time.
inline std::uint64_t scrambled(std::uint64_t x) {
  x = (x ^ (x >> 31U)) * 0x9E37'79B9'7F4A'7C15U;
  x = (x ^ (x >> 29U)) * 0xD6E8'FEB8'6659'FD93U;
  return x ^ (x >> 32U);
}

// Element i of what a rank puts in: of mixed sign and magnitude, so that the order of a sum shows.
inline double element_of(const Step& step, int rank, std::int64_t i) {
  const std::uint64_t random = scrambled(step.seed + scrambled(index(rank) * 4096 + index(i) + 1));
  const auto mantissa = static_cast<double>(random % 2001) - 1000.0;
  if (step.type == DataType::int64) return mantissa;
  return std::ldexp(mantissa, static_cast<int>((random >> 40U) % 20) - 10);
}

// To the nearest bf16, by distance; a tie goes to the even one.
inline float rounded_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value) & 0xFFFF0000U;
  const auto below = std::bit_cast<float>(bits);
  const auto above = std::bit_cast<float>(bits + 0x10000U);
  const double to_below = std::fabs(static_cast<double>(value) - static_cast<double>(below));
  const double to_above = std::fabs(static_cast<double>(above) - static_cast<double>(value));
  if (to_below != to_above) return to_below < to_above ? below : above;
  return (bits >> 16U) % 2 == 0 ? below : above;
}

inline void store(Raw& to, std::int64_t i, DataType type, double value) {
  const auto put = [&](auto stored) {
    std::memcpy(to.data() + index(i) * sizeof(stored), &stored, sizeof(stored));
  };
  switch (type) {
    case DataType::int64:
      return put(static_cast<std::int64_t>(value));
    case DataType::fp64:
      return put(value);
    case DataType::fp32:
      return put(static_cast<float>(value));
    case DataType::bf16: {
      const auto bits = std::bit_cast<std::uint32_t>(rounded_bf16(static_cast<float>(value)));
      return put(static_cast<std::uint16_t>(bits >> 16U));
    }
  }
}

inline double load(const Raw& from, std::int64_t i, DataType type) {
  const auto take = [&](auto stored) {
    std::memcpy(&stored, from.data() + index(i) * sizeof(stored), sizeof(stored));
    return stored;
  };
  switch (type) {
    case DataType::int64:
      return static_cast<double>(take(std::int64_t{}));
    case DataType::fp64:
      return take(double{});
    case DataType::fp32:
      return static_cast<double>(take(float{}));
    case DataType::bf16:
      return static_cast<double>(
          std::bit_cast<float>(static_cast<std::uint32_t>(take(std::uint16_t{})) << 16U));
  }
  return 0;
}

inline Raw zeros(std::int64_t count, DataType type) { return Raw(index(count * bytes_of(type))); }

// What a rank puts in: `count` elements.
inline Raw input_of(const Step& step, int rank, std::int64_t count) {
  Raw raw = zeros(count, step.type);
  for (std::int64_t i = 0; i < count; ++i) store(raw, i, step.type, element_of(step, rank, i));
  return raw;
}

inline std::int64_t input_count(const Step& step, int place) {
  const auto size = std::ssize(step.members);
  if (step.kind == OperationKind::reduce_scatter) return step.count * size;
  if (step.kind == OperationKind::all_to_all) {
    const auto& row = step.blocks[index(place)];
    return std::accumulate(row.begin(), row.end(), std::int64_t{0});
  }
  return step.count;
}

// Element i, reduced over the members in their order.
inline void store_reduced(const Step& step, const std::vector<Raw>& inputs, std::int64_t i,
                          Raw& out, std::int64_t at) {
  double sum = load(inputs[0], i, step.type);
  for (std::size_t k = 1; k < inputs.size(); ++k) {
    const double next = load(inputs[k], i, step.type);
    if (step.reduction == Reduction::max) {
      sum = std::max(sum, next);
    } else {
      sum += next;
      // fp32 and bf16 are added in fp32.
      if (bytes_of(step.type) < 8) sum = static_cast<double>(static_cast<float>(sum));
    }
  }
  store(out, at, step.type, sum);
}

// What the member at `place` must end with.
inline Raw expected(const Step& step, int place) {
  const auto size = static_cast<int>(step.members.size());
  std::vector<Raw> inputs;
  inputs.reserve(step.members.size());
  for (int k = 0; k < size; ++k) {
    inputs.push_back(input_of(step, step.members[index(k)], input_count(step, k)));
  }
  switch (step.kind) {
    case OperationKind::all_reduce:
    case OperationKind::reduce_scatter: {
      Raw out = zeros(step.count, step.type);
      const std::int64_t first =
          step.kind == OperationKind::reduce_scatter ? place * step.count : 0;
      for (std::int64_t i = 0; i < step.count; ++i) {
        store_reduced(step, inputs, first + i, out, i);
      }
      return out;
    }
    case OperationKind::all_gather: {
      Raw out;
      for (const Raw& input : inputs) out.insert(out.end(), input.begin(), input.end());
      return out;
    }
    case OperationKind::all_to_all: {
      Raw out;
      for (int k = 0; k < size; ++k) {
        const auto& row = step.blocks[index(k)];
        const auto first = std::accumulate(row.begin(), row.begin() + place, std::int64_t{0});
        const auto from = inputs[index(k)].begin() + first * bytes_of(step.type);
        out.insert(out.end(), from, from + row[index(place)] * bytes_of(step.type));
      }
      return out;
    }
    case OperationKind::broadcast:
      return inputs[index(step.root)];
    case OperationKind::message:  // around the ring
      return inputs[index((place + size - 1) % size)];
    case OperationKind::barrier:
    case OperationKind::subgroup:
      return {};
  }
  return {};
}

// An operation under way, with its buffers.
struct Playing {
  Raw in, out;
  Handle handle;
};

// Begins the step in the group of its members. The group keeps its place for every step.
inline std::unique_ptr<Playing> begin(const Step& step, Group& group) {
  auto playing = std::make_unique<Playing>();
  const int place = group.rank();
  const int size = group.size();
  playing->in = input_of(step, step.members[index(place)], input_count(step, place));
  const auto in = [&] {
    return ConstBuffer(playing->in.data(), std::ssize(playing->in) / bytes_of(step.type),
                       step.type);
  };
  const auto out = [&](std::int64_t count) {
    playing->out = zeros(count, step.type);
    return Buffer{playing->out.data(), count, step.type};
  };
  const auto in_place = [&] {
    playing->out = playing->in;
    return Buffer{playing->out.data(), step.count, step.type};
  };
  switch (step.kind) {
    case OperationKind::all_reduce:
      playing->handle = group.all_reduce(in_place(), step.reduction, "play");
      break;
    case OperationKind::reduce_scatter:
      playing->handle = group.reduce_scatter(in(), out(step.count), step.reduction, "play");
      break;
    case OperationKind::all_gather: {
      const Buffer all = out(step.count * size);
      std::byte* own = playing->out.data() + place * step.count * bytes_of(step.type);
      if (step.seed % 2 == 0) {  // from its own place in the output
        std::ranges::copy(playing->in, own);
        playing->handle = group.all_gather({own, step.count, step.type}, all, "play");
      } else {
        playing->handle = group.all_gather(in(), all, "play");
      }
      break;
    }
    case OperationKind::all_to_all: {
      std::vector<std::int64_t> from;
      from.reserve(step.blocks.size());
      for (const auto& row : step.blocks) from.push_back(row[index(place)]);
      const auto total = std::accumulate(from.begin(), from.end(), std::int64_t{0});
      playing->handle = group.all_to_all(in(), step.blocks[index(place)], out(total), from, "play");
      break;
    }
    case OperationKind::broadcast:
      playing->handle = group.broadcast(in_place(), step.root, "play");
      break;
    case OperationKind::message: {
      const Outgoing to{.buffer = in(), .to = (place + 1) % size};
      const Incoming from{.buffer = out(step.count), .from = (place + size - 1) % size};
      playing->handle = group.exchange({&to, 1}, {&from, 1}, "play");
      break;
    }
    case OperationKind::barrier:
      group.barrier("play");
      break;
    case OperationKind::subgroup:
      break;
  }
  return playing;
}

inline std::vector<std::vector<std::int64_t>> random_blocks(std::size_t size,
                                                            std::mt19937_64& random) {
  std::vector<std::vector<std::int64_t>> blocks(size, std::vector<std::int64_t>(size));
  for (auto& row : blocks) {
    for (auto& count : row) count = static_cast<std::int64_t>(random() % 6);
  }
  return blocks;
}

// Any operations on any members. Every rank draws the same.
inline std::vector<Step> random_steps(std::uint64_t seed, int ranks, int count) {
  using enum OperationKind;
  constexpr OperationKind kKinds[] = {all_reduce, reduce_scatter, all_gather, all_to_all,
                                      broadcast,  message,        barrier};
  constexpr DataType kTypes[] = {DataType::int64, DataType::fp64, DataType::fp32, DataType::bf16};
  std::mt19937_64 random(seed);
  std::vector<Step> steps;
  for (int i = 0; i < count; ++i) {
    Step step;
    step.kind = kKinds[random() % std::size(kKinds)];
    step.type = kTypes[random() % std::size(kTypes)];
    step.reduction = random() % 3 == 0 ? Reduction::max : Reduction::sum;
    std::vector<int> order(index(ranks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    order.resize(1 + random() % order.size());
    step.members = std::move(order);
    step.root = static_cast<int>(random() % step.members.size());
    step.count = random() % 8 == 0 ? 3000 : static_cast<std::int64_t>(random() % 20);
    step.blocks = random_blocks(step.members.size(), random);
    step.seed = random();
    steps.push_back(std::move(step));
  }
  return steps;
}

// Plays the steps with a few under way at a time, and waits for them in an order of this rank's
// own. What each step gave; nothing for a rank that is not a member.
inline std::vector<Raw> play(const std::vector<Step>& steps, Group& world) {
  std::mt19937_64 random(static_cast<std::uint64_t>(world.rank()));
  std::vector<std::unique_ptr<Playing>> played(steps.size());
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<std::size_t> under_way;
  const auto wait_for_all = [&] {
    std::shuffle(under_way.begin(), under_way.end(), random);
    for (const std::size_t i : under_way) played[i]->handle.wait();
    under_way.clear();
  };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& members = steps[i].members;
    if (std::ranges::find(members, world.rank()) == members.end()) continue;
    groups.push_back(world.subgroup(members, "some ranks"));
    played[i] = begin(steps[i], *groups.back());
    under_way.push_back(i);
    if (under_way.size() == 4) wait_for_all();
  }
  wait_for_all();
  std::vector<Raw> results(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (played[i] != nullptr) results[i] = played[i]->out;
  }
  return results;
}

}  // namespace braid::comm
