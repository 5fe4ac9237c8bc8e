#include "runtime/train/step_trace.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "runtime/parallel/collectives.h"

namespace braid::train {

using parallel::CommSpan;
using parallel::SendTimes;
using parallel::StepRecord;

namespace {

// Every rank's numbers, in the order of ranks. Ranks may have different numbers of them.
std::vector<std::vector<double>> gather_numbers(const std::vector<double>& mine, at::Device device,
                                                comm::Group& world, const char* name) {
  at::Tensor most = at::empty({1}, at::kLong);
  *most.data_ptr<std::int64_t>() = std::ssize(mine);
  const at::Tensor counts = parallel::all_gather(most.to(device), world, name).to(at::kCPU);
  const auto* count = counts.data_ptr<std::int64_t>();
  const std::int64_t longest = *std::max_element(count, count + world.size());
  std::vector<std::vector<double>> all(static_cast<std::size_t>(world.size()));
  if (longest == 0) return all;
  at::Tensor padded = at::zeros({longest}, at::kDouble);
  std::ranges::copy(mine, padded.data_ptr<double>());
  const at::Tensor numbers = parallel::all_gather(padded.to(device), world, name).to(at::kCPU);
  const auto* number = numbers.data_ptr<double>();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const double* first = number + static_cast<std::int64_t>(rank) * longest;
    all[rank].assign(first, first + count[rank]);
  }
  return all;
}

constexpr std::array kMessages = {parallel::kActivation, parallel::kGradient};

SendTimes gather_sends(const StepRecord& step, at::Device device, comm::Group& world) {
  constexpr std::size_t kNumbers = 3;  // peer, message, time
  std::vector<double> mine;
  for (const CommSpan& span : step.comm) {
    if (span.role != parallel::Role::sends) continue;
    const auto message = std::ranges::find(kMessages, span.operation);
    mine.push_back(span.peer);
    mine.push_back(static_cast<double>(message - kMessages.begin()));
    mine.push_back(span.time.begin.value());
  }
  SendTimes sent;
  const auto all = gather_numbers(mine, device, world, "times of sending");
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (std::size_t i = 0; i < all[rank].size(); i += kNumbers) {
      const std::vector<double>& numbers = all[rank];
      const std::string message = kMessages[static_cast<std::size_t>(numbers[i + 1])];
      sent[{static_cast<int>(rank), static_cast<int>(numbers[i]), message}].emplace_back(
          numbers[i + 2]);
    }
  return sent;
}

std::vector<double> numbers_of(const StepTerms& terms) {
  std::vector<double> numbers;
  numbers.reserve(kPlainTerms.size() + 2 * kCommTerms.size());
  for (const PlainTerm& term : kPlainTerms) numbers.push_back((terms.*term.member).value());
  for (const CommTerm& term : kCommTerms) {
    numbers.push_back((terms.*term.member).exposed.value());
    numbers.push_back((terms.*term.member).hidden.value());
  }
  return numbers;
}

StepTerms terms_from(const std::vector<double>& numbers) {
  StepTerms terms;
  auto next = numbers.begin();
  for (const PlainTerm& term : kPlainTerms) terms.*term.member = Seconds(*next++);
  for (const CommTerm& term : kCommTerms) {
    const Seconds exposed(*next++);
    terms.*term.member = {exposed, Seconds(*next++)};
  }
  return terms;
}

// Texts of all ranks on rank 0, one after the other: together they would fill every rank's memory.
std::vector<std::string> collect_texts(const std::string& mine, at::Device device,
                                       comm::Group& world) {
  constexpr const char* kName = "trace of a rank";
  constexpr std::int64_t kWord = sizeof(std::int64_t);
  at::Tensor size = at::empty({1}, at::kLong);
  *size.data_ptr<std::int64_t>() = std::ssize(mine);
  const at::Tensor sizes = parallel::all_gather(size.to(device), world, kName).to(at::kCPU);
  const auto words = [&](int rank) {
    return (sizes.data_ptr<std::int64_t>()[rank] + kWord - 1) / kWord;
  };
  if (world.rank() > 0) {
    at::Tensor text = at::zeros({words(world.rank())}, at::kLong);
    std::memcpy(text.data_ptr(), mine.data(), mine.size());
    const at::Tensor sent = text.to(device);
    world.send(parallel::buffer_of(sent), 0, kName).wait();
    return {};
  }
  std::vector<std::string> texts = {mine};
  for (int rank = 1; rank < world.size(); ++rank) {
    const at::Tensor arrived =
        at::empty({words(rank)}, at::TensorOptions(at::kLong).device(device));
    world.receive(parallel::buffer_of(arrived), rank, kName).wait();
    const at::Tensor text = arrived.to(at::kCPU);
    texts.emplace_back(static_cast<const char*>(text.data_ptr()),
                       static_cast<std::size_t>(sizes.data_ptr<std::int64_t>()[rank]));
  }
  return texts;
}

}  // namespace

std::vector<StepTerms> gather_terms(const std::vector<StepRecord>& steps, const Plan& plan,
                                    at::Device device, comm::Group& world) {
  StepTerms mine;
  for (const StepRecord& step : steps)
    mine += parallel::terms_of(step, world.rank(), gather_sends(step, device, world));
  mine = mine / static_cast<double>(steps.size());
  const auto all = gather_numbers(numbers_of(mine), device, world, "terms of a step");
  std::vector<StepTerms> stages(static_cast<std::size_t>(plan.shape.stages));
  const Mesh mesh = plan.mesh();
  for (int rank = 0; rank < world.size(); ++rank)
    stages[static_cast<std::size_t>(stage_of(rank, mesh))] +=
        terms_from(all[static_cast<std::size_t>(rank)]);
  for (StepTerms& stage : stages) stage = stage / static_cast<double>(mesh.stage_devices());
  return stages;
}

void write_trace(const std::filesystem::path& file, const std::vector<StepRecord>& steps,
                 const Plan& plan, at::Device device, comm::Group& world) {
  const int rank = world.rank();
  const std::string name = fmt::format("rank {} stage {}", rank, stage_of(rank, plan.mesh()));
  const std::vector<std::string> processes =
      collect_texts(trace_events(rank, parallel::trace_of(steps, name)), device, world);
  if (rank == 0) write_text(file, trace_file(processes));
}

}  // namespace braid::train
