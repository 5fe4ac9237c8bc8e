#include "runtime/measure/bench.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "planner/core/error.h"
#include "runtime/measure/stopped.h"
#include "runtime/ops/device.h"
#include "runtime/parallel/collectives.h"

namespace braid::measure {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Timing robust(std::vector<double> seconds) {
  internal_check(!seconds.empty(), "a timing has repetitions");
  std::ranges::sort(seconds);
  const double median = quantile(seconds, 0.5);
  const double middle_half = quantile(seconds, 0.75) - quantile(seconds, 0.25);
  return {median, median > 0 ? middle_half / median : 0};
}

std::string broadcast_text(const std::string& text, comm::Group& world, c10::Device device) {
  if (world.size() == 1) return text;
  const auto send = [&](const at::Tensor& words) {
    at::Tensor there = words.to(device);
    world.broadcast(parallel::buffer_of(there), 0, "broadcast text").wait();
    return there.to(at::kCPU);
  };
  at::Tensor length = at::empty({1}, at::kLong);
  *length.data_ptr<std::int64_t>() = static_cast<std::int64_t>(text.size());
  length = send(length);
  const auto bytes = static_cast<std::size_t>(*length.data_ptr<std::int64_t>());
  constexpr std::size_t kWord = sizeof(std::int64_t);
  at::Tensor words = at::zeros({static_cast<std::int64_t>(bytes / kWord + 1)}, at::kLong);
  if (world.rank() == 0) std::memcpy(words.data_ptr(), text.data(), bytes);
  words = send(words);
  return {static_cast<const char*>(words.data_ptr()), bytes};
}

Bench::Bench(comm::Group& world, c10::Device device, Journal journal, BenchOptions options)
    : world_(world), device_(device), journal_(std::move(journal)), options_(std::move(options)) {
  const std::string known = broadcast_text(journal_.text(), world, device);
  if (world.rank() > 0) journal_ = Journal::from_text(known);
}

std::vector<double> Bench::mean_over_ranks(const std::vector<double>& mine) {
  at::Tensor sums = at::empty({static_cast<std::int64_t>(mine.size())}, at::kDouble);
  std::ranges::copy(mine, sums.data_ptr<double>());
  sums = sums.to(device_);
  parallel::all_reduce(sums, world_, "mean of a measurement");
  sums = sums.to(at::kCPU).div_(world_.size());
  const auto* values = sums.data_ptr<double>();
  return {values, values + mine.size()};
}

// Rank 0's clock decides for all.
bool Bench::out_of_time() {
  if (!options_.limit) return false;
  const double late = seconds_since(begin_) > static_cast<double>(options_.limit->count()) ? 1 : 0;
  return mean_over_ranks({first() ? late : 0})[0] > 0;
}

void Bench::stop() {
  const auto signals = parallel::gather_words(options_.stop_signal ? options_.stop_signal() : 0,
                                              world_, device_, "signals");
  throw Stopped(static_cast<int>(std::ranges::max(signals)),
                journal_.file().empty()
                    ? ""
                    : fmt::format("{} has {} measurements; the same command goes on from there",
                                  journal_.file().string(), journal_.size()));
}

std::optional<std::vector<double>> Bench::run(const std::string& key,
                                              const std::function<std::vector<double>()>& work) {
  progress_.name = key;
  if (first() && options_.progress) options_.progress(progress_);
  ++progress_.done;
  std::optional<Finding> finding = journal_.find(key);
  if (!finding) {
    if (out_of_time()) {
      ++skipped_;
      return std::nullopt;
    }
    spread_ = 0;
    std::vector<double> values = work();
    values.push_back(spread_);
    values.push_back(options_.stop_signal && options_.stop_signal() != 0 ? 1 : 0);
    values = mean_over_ranks(values);
    const bool stops = values.back() > 0;
    values.pop_back();
    const double spread = values.back();
    values.pop_back();
    finding = Finding{std::move(values), spread};
    journal_.add(key, *finding);
    if (stops) stop();
  }
  spreads_.emplace_back(finding->spread, key);
  return finding->values;
}

double Bench::time(const std::function<void()>& body) {
  return time_parts([&] {
    const auto begin = Clock::now();
    body();
    ops::synchronise(device_);
    return std::vector<double>{seconds_since(begin)};
  })[0];
}

std::vector<double> Bench::time_parts(const std::function<std::vector<double>()>& body) {
  const auto warm_up = [&] {
    const auto begin = Clock::now();
    body();
    return mean_over_ranks({seconds_since(begin)})[0];
  };
  // All ranks agree on how often: what takes long needs fewer repetitions, and no more warm-up.
  double first_call = 0;
  for (int i = 0; i < options_.warm_up && first_call < options_.enough_seconds; ++i)
    first_call = warm_up();
  std::vector<std::vector<double>> parts;
  const auto once = [&] {
    ops::synchronise(device_);
    world_.barrier("a repetition");
    const std::vector<double> seconds = body();
    parts.resize(seconds.size());
    for (std::size_t i = 0; i < seconds.size(); ++i) parts[i].push_back(seconds[i]);
  };
  const auto begin = Clock::now();
  for (int i = 0; i < options_.least_repetitions; ++i) once();
  const double each = mean_over_ranks({seconds_since(begin)})[0] / options_.least_repetitions;
  const int most = options_.most_repetitions - options_.least_repetitions;
  const double left = options_.enough_seconds / std::max(each, 1e-9) - options_.least_repetitions;
  for (int i = 0; i < std::clamp(static_cast<int>(left), 0, most); ++i) once();
  std::vector<double> medians;
  medians.reserve(parts.size());
  for (const std::vector<double>& part : parts) {
    const Timing timing = robust(part);
    medians.push_back(timing.seconds);
    spread_ = std::max(spread_, timing.spread);
  }
  return medians;
}

Noise Bench::noise() const {
  Noise noise;
  if (spreads_.empty()) return noise;
  std::vector<double> values;
  values.reserve(spreads_.size());
  for (const auto& [spread, key] : spreads_) values.push_back(spread);
  std::ranges::sort(values);
  const auto& worst = *std::ranges::max_element(spreads_);
  noise.measurements = static_cast<int>(spreads_.size());
  noise.typical = quantile(values, 0.5);
  noise.worst = worst.first;
  noise.worst_name = worst.second;
  return noise;
}

}  // namespace braid::measure
