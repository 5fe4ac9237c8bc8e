// The scheduler behind cuda_runtime.h.

#include <cuda_runtime.h>
#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

constexpr std::size_t kStack = std::size_t{64} << 10;
constexpr std::size_t kLanes = 32;

enum class State { ready, at_barrier, at_shuffle, done };

// A context is only where a fiber begins: changing places by jumps spares two calls of the system
// each time.
struct Fiber {
  ucontext_t context{};
  jmp_buf place{};
  bool begun = false;
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
  State state = State::done;
  std::array<std::uint64_t, 2> shown{};  // to the warp, in turns: others may still read the last
  unsigned turn = 0;
};

ucontext_t begin;
jmp_buf scheduler;
std::vector<Fiber> fibers;
std::size_t current = 0;
const std::function<void()>* body = nullptr;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "emulated CUDA: %s (block %u,%u thread %zu)\n", what, blockIdx.x, blockIdx.y,
               current);
  std::abort();
}

void run_fiber() {
  (*body)();
  fibers[current].state = State::done;
  _longjmp(scheduler, 1);
}

void stop_here(State state) {
  fibers[current].state = state;
  if (_setjmp(fibers[current].place) == 0) _longjmp(scheduler, 1);
}

// Until it stops again.
void resume(Fiber& fiber) {
  if (_setjmp(scheduler) != 0) return;
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  swapcontext(&begin, &fiber.context);
}

// Lets the threads from `begin` to `end` go on if all of them wait for `state`; a thread that is
// done while others wait never comes.
bool release(std::size_t begin, std::size_t end, State state, const char* trouble) {
  bool any = false, missing = false;
  for (std::size_t i = begin; i < end; ++i) {
    any = any || fibers[i].state == state;
    missing = missing || fibers[i].state == State::done;
    if (fibers[i].state != state && fibers[i].state != State::done) return false;
  }
  if (!any) return false;
  if (missing) fail(trouble);
  for (std::size_t i = begin; i < end; ++i) fibers[i].state = State::ready;
  return true;
}

// As far as it comes by itself.
void run_warp(std::size_t first) {
  const std::size_t end = first + kLanes;
  do {
    for (current = first; current < end; ++current) {
      if (fibers[current].state != State::ready) continue;
      threadIdx = dim3(static_cast<unsigned>(current));
      resume(fibers[current]);
    }
  } while (release(first, end, State::at_shuffle, "a shuffle without all lanes"));
}

void run_block(std::size_t threads) {
  if (fibers.size() < threads) fibers.resize(threads);
  for (std::size_t i = 0; i < threads; ++i) {
    Fiber& fiber = fibers[i];
    fiber.state = State::ready;
    fiber.begun = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, run_fiber, 0);
  }
  // From barrier to barrier one warp after the other, in one order and then in the other: what a
  // warp writes too early is seen by one that reads late.
  bool forwards = true;
  do {
    for (std::size_t i = 0; i < threads; i += kLanes) run_warp(forwards ? i : threads - kLanes - i);
    forwards = !forwards;
  } while (release(0, threads, State::at_barrier, "a barrier without all threads"));
  for (current = 0; current < threads; ++current)
    if (fibers[current].state != State::done) fail("threads wait for each other");
}

}  // namespace

void __syncthreads() { stop_here(State::at_barrier); }

std::uint64_t emulated_shuffle(std::uint64_t bits, int mask) {
  const std::size_t self = current;
  const std::size_t turn = fibers[self].turn++ % 2;
  fibers[self].shown[turn] = bits;
  stop_here(State::at_shuffle);
  const std::size_t other = self ^ static_cast<std::size_t>(mask);
  return fibers[other].shown[turn];
}

void emulated_launch(dim3 grid, dim3 block, const std::function<void()>& thread) {
  static std::mutex one_launch;  // ranks may be threads
  const std::scoped_lock lock(one_launch);
  body = &thread;
  gridDim = grid;
  blockDim = block;
  if (block.x % kLanes != 0 || block.x > 1024 || block.y != 1 || block.z != 1)
    fail("blocks are one-dimensional and of whole warps");
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = dim3(x, y);
      for (Fiber& fiber : fibers) fiber.turn = 0;
      run_block(block.x);
    }
}
