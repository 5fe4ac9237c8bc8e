#include "cli/renamed.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "cli/common.h"

namespace braid::cli {
namespace {

struct RenamedFlag {
  std::string_view verb, before, now;
};
constexpr RenamedFlag kRenamed[] = {
    {"auto", "--decay", "--lr-decay"},
    {"auto", "--json", "--out"},
    {"auto", "--warmup", "--lr-warmup"},
    {"bench", "--batch", "--global-batch"},
    {"bench", "--json", "--out"},
    {"bench", "--warmup", "--warmup-steps"},
    {"compare", "--plans", "--plan"},
    {"compare", "--warmup", "--warmup-steps"},
    {"primepar", "--batch", "--micro-batch"},
    {"primepar", "--sequence", "--seq"},
    {"simulate", "--memory", "--allocator"},
    {"train", "--decay", "--lr-decay"},
    {"train", "--json", "--out"},
    {"train", "--warmup", "--lr-warmup"},
};

// Whether a launcher started this process as another one than its first: of several, one tells.
bool is_later_process() {
  constexpr const char* kRanks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID",
                                    "RANK"};
  return std::ranges::any_of(kRanks, [](const char* name) {
    const char* rank = std::getenv(name);
    return rank != nullptr && std::string_view(rank) != "0";
  });
}

}  // namespace

std::vector<std::string> with_present_names(std::vector<std::string> words) {
  if (words.empty()) return words;
  const std::string verb = words.front();
  for (std::string& word : words) {
    const std::string flag = word.substr(0, word.find('='));
    const auto* const renamed = std::ranges::find_if(kRenamed, [&](const RenamedFlag& candidate) {
      return candidate.verb == verb && candidate.before == flag;
    });
    if (renamed == std::end(kRenamed)) continue;
    if (!is_later_process())
      note(fmt::format("warning: {} of 'braid {}' is called {} now; the old name works until 0.2.0",
                       flag, verb, renamed->now));
    word = std::string(renamed->now) + word.substr(flag.size());
  }
  return words;
}

}  // namespace braid::cli
