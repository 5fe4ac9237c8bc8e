// Run under mpirun with the name of a check. A check that expects an error prints it and ends all
// ranks; CTest looks for the words.

#include <fmt/core.h>

#include <functional>
#include <string_view>
#include <thread>

#include "runtime/comm/in_process.h"
#include "runtime/comm/mpi.h"
#include "tests/comm/play.h"

namespace braid::comm {
namespace {

using std::chrono::milliseconds;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Same bits as threads of one process, and as the definition of each operation.
void check_play(Group& world) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const std::vector<Step> steps = random_steps(seed, world.size(), 80);
    std::vector<Raw> reference;
    run_in_process(world.size(), [&](Group& threads) {
      auto results = play(steps, threads);
      if (threads.rank() == world.rank()) reference = std::move(results);
    });
    const std::vector<Raw> results = play(steps, world);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      const auto text =
          fmt::format("step {} of seed {}: {} of {} {} on {} ranks", i, seed, name_of(step.kind),
                      step.count, name_of(step.type), step.members.size());
      require(results[i] == reference[i], "not the bits of in_process: " + text);
      const auto found = std::ranges::find(step.members, world.rank());
      if (found == step.members.end()) continue;
      const auto place = static_cast<int>(found - step.members.begin());
      require(results[i] == expected(step, place), "not what the definition says: " + text);
    }
  }
}

void check_split(Group& world) {
  const auto group = world.split(world.rank() % 2, -world.rank(), "halves");
  std::vector<std::int64_t> all(index(group->size()));
  const std::int64_t self = world.rank();
  group->all_gather({&self, 1, DataType::int64}, {all.data(), group->size(), DataType::int64}, "x")
      .wait();
  require(std::ranges::is_sorted(all, std::greater<>()) && all.back() == self % 2,
          "a half holds its ranks by falling key");
}

// More messages and sums under way than tags have numbers, waited for in another order on each
// rank.
void check_many(Group& world) {
  constexpr std::int64_t kRounds = 300;
  std::vector<std::int64_t> sums(index(kRounds)), words(index(kRounds));
  std::vector<Handle> handles;
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  for (std::int64_t i = 0; i < kRounds; ++i) {
    sums[index(i)] = i;
    const Buffer sum{&sums[index(i)], 1, DataType::int64};
    handles.push_back(world.all_reduce(sum, Reduction::sum, "sum"));
    world.send({&i, 1, DataType::int64}, next, "word").wait();
    handles.push_back(world.receive({&words[index(i)], 1, DataType::int64}, previous, "word"));
    if (i % 7 == 0) auto dropped = world.all_reduce(sum, Reduction::max, "dropped");
  }
  if (world.rank() % 2 == 0) std::ranges::reverse(handles);
  for (Handle& handle : handles) handle.wait();
  for (std::int64_t i = 0; i < kRounds; ++i) {
    require(sums[index(i)] == i * world.size() && words[index(i)] == i, "a sum or word is wrong");
  }
}

// Longer than the int in which MPI counts. It takes 9 GB, so it is run by hand, on two ranks.
void check_large(Group& world) {
  const std::int64_t count = (std::int64_t{1} << 28) + 17;  // of 8 bytes: 2 GiB and a bit
  std::vector<std::int64_t> data(index(count));
  const Buffer buffer{data.data(), count, DataType::int64};
  if (world.rank() == 0) {
    std::iota(data.begin(), data.end(), std::int64_t{0});
    world.send(buffer, 1, "large").wait();
  } else if (world.rank() == 1) {
    world.receive(buffer, 0, "large").wait();
    for (std::int64_t i = 0; i < count; ++i) require(data[index(i)] == i, "an element is wrong");
  }
}

void sum(Group& group, std::int64_t count, std::string_view name) {
  std::vector<float> values(index(count), 1.0F);
  group.all_reduce({values.data(), count, DataType::fp32}, Reduction::sum, name).wait();
}

void check_names_differ(Group& world) { sum(world, 9, world.rank() == 2 ? "loss" : "norm"); }

// Rank 2 sends more than the others have room for.
void check_counts_differ(Group& world) { sum(world, world.rank() == 2 ? 90'000 : 9, "loss"); }

void check_kinds_differ(Group& world) {
  if (world.rank() != 2) return sum(world, 9, "loss");
  world.barrier("step");
}

void check_blocks_differ(Group& world) {
  const std::vector<float> in(index(world.size()) + 1, 1.0F);
  std::vector<float> out(index(world.size()));
  std::vector<std::int64_t> sends(index(world.size()), 1);
  const std::vector<std::int64_t> receives(index(world.size()), 1);
  if (world.rank() == 2) sends[0] = 2;
  const std::int64_t count = world.size() + (world.rank() == 2 ? 1 : 0);
  world
      .all_to_all({in.data(), count, DataType::fp32}, sends,
                  {out.data(), world.size(), DataType::fp32}, receives, "tokens")
      .wait();
}

// Rank 0 begins an operation and computes; rank 1, which waits for it, is served meanwhile. The
// quickest of a few tries counts, as the machine may be busy.
void check_progress(Group& world) {
  constexpr milliseconds kComputes(1200), kServed(600);
  constexpr int kTries = 5;
  constexpr std::int64_t kCount = 1 << 19;  // of 4 bytes: too long to leave unattended
  if (world.rank() > 1) return;
  const int members[] = {0, 1};
  const auto pair = world.subgroup(members, "pair");
  std::vector<float> in(index(2 * kCount)), out(index(2 * kCount));
  const Buffer whole_in{in.data(), 2 * kCount, DataType::fp32};
  const Buffer whole_out{out.data(), 2 * kCount, DataType::fp32};
  const Buffer half_in{in.data(), kCount, DataType::fp32};
  const Buffer half_out{out.data(), kCount, DataType::fp32};
  const std::pair<std::string_view, std::function<Handle()>> operations[] = {
      {"all_gather", [&] { return pair->all_gather(half_in, whole_out, "x"); }},
      {"reduce_scatter",
       [&] { return pair->reduce_scatter(whole_in, half_out, Reduction::sum, "x"); }},
      {"all_reduce", [&] { return pair->all_reduce(whole_in, Reduction::sum, "x"); }},
      {"send",
       [&] {
         return pair->rank() == 0 ? pair->send(whole_in, 1, "x") : pair->receive(whole_out, 0, "x");
       }},
  };
  for (const auto& [name, begin] : operations) {
    std::int64_t served = 0;
    for (int attempt = 0; attempt < kTries && served == 0; ++attempt) {
      pair->barrier("together");
      const auto start = std::chrono::steady_clock::now();
      Handle handle = begin();
      if (pair->rank() == 0) std::this_thread::sleep_for(kComputes);
      handle.wait();
      served = pair->rank() == 1 && std::chrono::steady_clock::now() - start < kServed ? 1 : 0;
      pair->all_reduce({&served, 1, DataType::int64}, Reduction::sum, "served").wait();
    }
    require(served > 0, fmt::format("{} waits for a rank that computes", name));
  }
}

void check_missing(Group& world) {
  sum(world, 9, "loss");
  if (world.rank() == 2) std::this_thread::sleep_for(milliseconds(5'000));
  sum(world, 9, "loss");
}

void check_members_differ(Group& world) {
  const int forward[] = {0, 1}, backward[] = {1, 0};
  if (world.rank() == 0) world.subgroup(forward, "pair");
  if (world.rank() == 1) world.subgroup(backward, "pair");
}

struct Check {
  std::string_view name;
  void (*run)(Group&);
  milliseconds timeout;
  std::int64_t piece_bytes;
};
constexpr Check kChecks[] = {
    {"play", check_play, milliseconds(20'000), kMpiPieceBytes},
    {"pieces", check_play, milliseconds(20'000), 1000},
    {"split", check_split, milliseconds(20'000), kMpiPieceBytes},
    {"many", check_many, milliseconds(20'000), kMpiPieceBytes},
    {"progress", check_progress, milliseconds(20'000), kMpiPieceBytes},
    {"large", check_large, milliseconds(20'000), kMpiPieceBytes},
    {"names_differ", check_names_differ, milliseconds(20'000), kMpiPieceBytes},
    {"counts_differ", check_counts_differ, milliseconds(20'000), kMpiPieceBytes},
    {"kinds_differ", check_kinds_differ, milliseconds(20'000), kMpiPieceBytes},
    {"blocks_differ", check_blocks_differ, milliseconds(20'000), kMpiPieceBytes},
    {"members_differ", check_members_differ, milliseconds(20'000), kMpiPieceBytes},
    {"missing", check_missing, milliseconds(1000), kMpiPieceBytes},
};

int run(std::string_view name) {
  const auto* check = std::ranges::find(kChecks, name, &Check::name);
  if (check == std::end(kChecks)) {
    fmt::print(stderr, "no check is called \"{}\"\n", name);
    return 2;
  }
  try {
    {
      const auto world = mpi_world(check->timeout, check->piece_bytes);
      check->run(*world);
      if (world->rank() == 0) fmt::print("passed: {} on {} ranks\n", name, world->size());
    }
    mpi_finalize();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    mpi_abort(1);
  }
  return 0;
}

}  // namespace
}  // namespace braid::comm

int main(int argc, char** argv) { return braid::comm::run(argc > 1 ? argv[1] : ""); }
