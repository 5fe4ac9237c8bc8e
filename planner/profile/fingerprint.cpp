#include "planner/profile/fingerprint.h"

#include <fmt/core.h>

#include <cstdint>

namespace braid {

// The two constants are those of the algorithm's definition (Fowler, Noll, Vo; draft-eastlake-fnv).
std::string fingerprint(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace braid
