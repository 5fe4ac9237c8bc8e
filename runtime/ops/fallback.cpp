#include "runtime/ops/fallback.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

namespace braid::ops {

namespace {

struct Notes {
  std::mutex mutex;
  std::set<std::string> told;
  FallbackListener listener;
};
Notes& notes() {
  static Notes all;
  return all;
}

}  // namespace

void note_fallback(const std::string& operation, const std::string& reason) {
  Notes& all = notes();
  const std::scoped_lock lock(all.mutex);
  const std::string line = operation + ": " + reason;
  if (!all.told.insert(line).second) return;
  if (all.listener) {
    all.listener(line);
  } else {
    std::fprintf(stderr, "braid: slower path: %s\n", line.c_str());
  }
}

FallbackListener on_fallback(FallbackListener listener) {
  Notes& all = notes();
  const std::scoped_lock lock(all.mutex);
  return std::exchange(all.listener, std::move(listener));
}

}  // namespace braid::ops
