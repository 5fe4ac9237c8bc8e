#include "runtime/train/agreement.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <thread>
#include <vector>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "planner/profile/fingerprint.h"
#include "runtime/parallel/collectives.h"

namespace braid::train {

namespace {

std::int64_t word_of(const std::string& text) {
  return static_cast<std::int64_t>(std::stoull(fingerprint(text), nullptr, 16));
}

// The ranks whose word differs from the one that most ranks have.
std::vector<int> odd_ranks(std::span<const std::int64_t> words) {
  std::int64_t usual = words.front();
  for (const std::int64_t word : words)
    if (std::ranges::count(words, word) > std::ranges::count(words, usual)) usual = word;
  std::vector<int> odd;
  for (std::size_t rank = 0; rank < words.size(); ++rank)
    if (words[rank] != usual) odd.push_back(static_cast<int>(rank));
  return odd;
}

std::string who_differs(std::span<const int> ranks) {
  const bool one = ranks.size() == 1;
  return fmt::format("{} {} {} from most", one ? "rank" : "ranks", join(ranks, ", "),
                     one ? "differs" : "differ");
}

// A sum of all elements' bits, each times an odd number of its own, modulo 2^64: two tensors that
// differ in one element differ in it.
std::int64_t content_of(const at::Tensor& values) {
  constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // bounds the memory that this takes
  const at::ScalarType type = values.element_size() == 8   ? at::kLong
                              : values.element_size() == 4 ? at::kInt
                                                           : at::kShort;
  const at::Tensor bits = values.contiguous().flatten().view(type);
  at::Tensor sum = at::zeros({1}, values.options().dtype(at::kLong));
  for (std::int64_t begin = 0; begin < bits.numel(); begin += kChunk) {
    const std::int64_t count = std::min(kChunk, bits.numel() - begin);
    const at::Tensor odd = at::arange(2 * begin + 1, 2 * (begin + count) + 1, 2, sum.options());
    sum.add_(bits.narrow(0, begin, count).to(at::kLong).mul_(odd).sum());
  }
  return sum.item<std::int64_t>();
}

// Elements that this rank holds of a layer: equal keys are the same elements.
struct Holding {
  std::int64_t key = 0, layer = 0, content = 0;
};
constexpr std::int64_t kWords = 3;

std::vector<Holding> holdings_of(models::RankModel& model) {
  std::vector<Holding> all;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    parallel::Parameters& parameters = model.layers[i]->parameters();
    std::string cut = fmt::format("{}", model.indices[i]);
    for (std::size_t id = 0; id < parameters.specs().size(); ++id) {
      const parallel::LocalShape& local = parameters.local(static_cast<int>(id));
      cut += fmt::format(" {} {} {} {}", parameters.full_name(static_cast<int>(id)),
                         fmt::join(local.shape, "x"), local.begin, local.across);
    }
    int number = 0;
    for (parallel::FlatBuffer* buffer : parameters.buffers()) {
      const auto add = [&](const char* what, std::int64_t begin, const at::Tensor& values) {
        if (!values.defined() || values.numel() == 0) return;
        const std::string key =
            fmt::format("{} | {} {} {} {}", cut, number, what, begin, values.numel());
        all.push_back({word_of(key), model.indices[i], content_of(values)});
      };
      add("states", buffer->owned_begin(), buffer->owned_master());
      add("weights", 0, buffer->weights());
      ++number;
    }
  }
  return all;
}

// Of every rank, in the order of ranks; ranks may have different numbers of them.
std::vector<std::vector<Holding>> gather(const std::vector<Holding>& mine, comm::Group& world,
                                         at::Device device) {
  constexpr const char* kName = "compare weights";
  const auto counts = parallel::gather_words(std::ssize(mine), world, device, kName);
  at::Tensor words = at::zeros({std::ranges::max(counts), kWords}, at::kLong);
  std::memcpy(words.data_ptr(), mine.data(), mine.size() * sizeof(Holding));
  const at::Tensor gathered = parallel::all_gather(words.to(device), world, kName).to(at::kCPU);
  const auto* from = static_cast<const std::byte*>(gathered.data_ptr());
  std::vector<std::vector<Holding>> all;
  for (const std::int64_t count : counts) {
    all.emplace_back(static_cast<std::size_t>(count));
    std::memcpy(all.back().data(), from, all.back().size() * sizeof(Holding));
    from += words.nbytes();
  }
  return all;
}

// Which ranks hold which content of the same elements.
using Holders = std::map<std::int64_t, std::vector<int>>;

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", join(ranks, ", "));
}

[[noreturn]] void refuse(const Holders& holders, std::int64_t layer, const std::string& when) {
  const auto usual =
      std::ranges::max_element(holders, {}, [](const auto& entry) { return entry.second.size(); });
  std::vector<int> odd;
  for (auto entry = holders.begin(); entry != holders.end(); ++entry)
    if (entry != usual) odd.insert(odd.end(), entry->second.begin(), entry->second.end());
  std::ranges::sort(odd);
  throw Error({.what = fmt::format("replicas hold different weights: {} and {} differ in layer {}",
                                   ranks_text(odd), ranks_text(usual->second), layer),
               .where = when,
               .fix = "give every rank the same checkpoint; weights that part during training come "
                      "from a device or a link that corrupts data: run without that node"});
}

}  // namespace

void expect_agreement(std::span<const Identity> identities, comm::Group& world, at::Device device) {
  for (const Identity& identity : identities) {
    const std::vector<int> odd = odd_ranks(parallel::gather_words(
        word_of(identity.text), world, device, fmt::format("compare {}", identity.what)));
    if (odd.empty()) continue;
    throw Error({.what = fmt::format("not the same {} on all {} ranks: {}", identity.what,
                                     world.size(), who_differs(odd)),
                 .where = fmt::format("the start of training, as rank {} sees it", world.rank()),
                 .fix = identity.fix});
  }
}

std::shared_ptr<const Dataset> open_together(
    comm::Group& world, at::Device device,
    const std::function<std::shared_ptr<const Dataset>()>& open) {
  constexpr std::chrono::milliseconds kPause(200);
  auto opening = std::async(std::launch::async, open);
  std::shared_ptr<const Dataset> data;
  while (true) {
    if (!data && opening.wait_for(kPause) == std::future_status::ready) data = opening.get();
    const auto ready = parallel::gather_words(data ? 1 : 0, world, device, "is the data open");
    if (std::ranges::find(ready, 0) == ready.end()) return data;
    if (data) std::this_thread::sleep_for(kPause);
  }
}

void expect_equal_replicas(models::RankModel& model, comm::Group& world, at::Device device,
                           const std::string& when) {
  if (world.size() == 1) return;
  static_assert(sizeof(Holding) == kWords * sizeof(std::int64_t));
  struct Element {
    std::int64_t layer = 0;
    Holders holders;
  };
  std::map<std::int64_t, Element> elements;  // by key
  const auto all = gather(holdings_of(model), world, device);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (const Holding& holding : all[rank]) {
      Element& element = elements[holding.key];
      element.layer = holding.layer;
      element.holders[holding.content].push_back(static_cast<int>(rank));
    }
  for (const auto& [key, element] : elements)
    if (element.holders.size() > 1) refuse(element.holders, element.layer, when);
}

}  // namespace braid::train
