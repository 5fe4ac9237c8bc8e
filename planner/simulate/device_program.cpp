#include "planner/simulate/device_program.h"

#include <algorithm>

#include "planner/core/error.h"

namespace braid {
namespace {

using List = std::vector<PassCollective> StageStreams::*;

// Their collectives take slots in this order, and regathers behind them.
constexpr List kLists[] = {&StageStreams::forward_gathers, &StageStreams::backward_gathers,
                           &StageStreams::scatters, &StageStreams::reductions};

bool makes_gradients(OpKind kind) {
  return kind == OpKind::backward || kind == OpKind::backward_weight;
}

// A step that falls due when a part of the pass's compute is done.
struct Mark {
  double at = 0;
  Step step;
};

StepSeconds scaled(const StepSeconds& whole, double share) {
  return {whole.forward * share, whole.backward_input * share, whole.backward_weight * share,
          whole.reduce * share, whole.update * share};
}

}  // namespace

DeviceProgram::DeviceProgram(const EventInput& input, const OpList& list, int stage)
    : shape_(input.shape),
      times_(input.times[static_cast<std::size_t>(stage)]),
      streams_(input.streams.empty() ? nullptr : &input.streams[static_cast<std::size_t>(stage)]) {
  if (streams_ != nullptr) {
    for (const List each : kLists) num_slots_ += static_cast<int>((streams_->*each).size());
    num_slots_ += static_cast<int>(streams_->regathers.size());
  }
  std::vector<std::size_t> last(static_cast<std::size_t>(shape_.chunks), list.size());
  for (std::size_t i = 0; i < list.size(); ++i)
    if (makes_gradients(list[i].kind)) last[static_cast<std::size_t>(list[i].chunk)] = i;
  by_place_.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Key key{list[i].kind, list[i].chunk, last[static_cast<std::size_t>(list[i].chunk)] == i};
    auto found = built_.find(key);
    if (found == built_.end()) found = built_.emplace(key, build(key)).first;
    by_place_.push_back(&found->second);
  }
}

Steps DeviceProgram::build(const Key& key) const {
  switch (std::get<OpKind>(key)) {
    case OpKind::forward:
    case OpKind::backward:
    case OpKind::backward_input:
    case OpKind::backward_weight:
      return pass(key);
    case OpKind::reduce:
      return reduce();
    case OpKind::update:
      return update();
    case OpKind::send_activation:
    case OpKind::receive_activation:
    case OpKind::send_gradient:
    case OpKind::receive_gradient:
      return {};
  }
  internal_failure("an operation without steps", std::source_location::current());
}

StepSeconds DeviceProgram::seconds(OpKind kind) const {
  const double share = 1.0 / shape_.chunks;
  StepSeconds s;
  if (kind == OpKind::forward) s.forward = (times_.forward * share).value();
  if (kind == OpKind::backward || kind == OpKind::backward_input)
    s.backward_input = (times_.backward_input * share).value();
  if (makes_gradients(kind)) s.backward_weight = (times_.backward_weight * share).value();
  if (kind == OpKind::reduce) s.reduce = times_.reduce.value();
  if (kind == OpKind::update) s.update = times_.update.value();
  return s;
}

int DeviceProgram::first_slot(List list) const {
  int slot = 0;
  for (const List each : kLists) {
    if (each == list) break;
    slot += static_cast<int>((streams_->*each).size());
  }
  return slot;
}

Steps DeviceProgram::pass(const Key& key) const {
  const auto [kind, chunk, last] = key;
  const StepSeconds whole = seconds(kind);
  if (streams_ == nullptr) return {{.kind = Step::Kind::compute, .seconds = whole}};
  std::vector<Mark> marks;
  const auto each = [&](List list, auto visit) {
    int slot = first_slot(list);
    for (const PassCollective& c : streams_->*list) {
      if (c.chunk == chunk) visit(c, slot);
      ++slot;
    }
  };
  const auto gather = [&](List list) {
    double asked = 0;  // the next one is asked for when its predecessor is used
    each(list, [&](const PassCollective& c, int slot) {
      const Step post{.kind = Step::Kind::post, .slot = slot, .message = &c.message};
      marks.push_back({asked, post});
      marks.push_back({c.at, {.kind = Step::Kind::await, .slot = slot}});
      asked = c.at;
    });
  };
  const auto reduce = [&](List list) {
    each(list, [&](const PassCollective& c, int slot) {
      marks.push_back({c.at,
                       {.kind = Step::Kind::post,
                        .slot = slot,
                        .message = &c.message,
                        .comm = CommKind::reduce}});
    });
  };
  if (kind == OpKind::forward) gather(&StageStreams::forward_gathers);
  if (kind == OpKind::backward || kind == OpKind::backward_input)
    gather(&StageStreams::backward_gathers);
  if (makes_gradients(kind)) reduce(&StageStreams::scatters);
  if (last) reduce(&StageStreams::reductions);
  std::ranges::stable_sort(marks, {}, &Mark::at);

  Steps steps;
  double done = 0;
  const auto compute_to = [&](double at) {
    if (at > done)
      steps.push_back({.kind = Step::Kind::compute, .seconds = scaled(whole, at - done)});
    done = std::max(done, at);
  };
  for (const Mark& mark : marks) {
    compute_to(mark.at);
    steps.push_back(mark.step);
  }
  compute_to(1);
  return steps;
}

// All sums must be there; what StageTimes give is exposed anyway.
Steps DeviceProgram::reduce() const {
  Steps steps;
  if (streams_ != nullptr) {
    const auto sums = static_cast<int>(streams_->scatters.size() + streams_->reductions.size());
    for (int i = 0; i < sums; ++i)
      steps.push_back({.kind = Step::Kind::await,
                       .slot = first_slot(&StageStreams::scatters) + i,
                       .comm = CommKind::reduce});
  }
  steps.push_back({.kind = Step::Kind::compute, .seconds = seconds(OpKind::reduce)});
  return steps;
}

Steps DeviceProgram::update() const {
  Steps steps = {{.kind = Step::Kind::barrier},
                 {.kind = Step::Kind::compute, .seconds = seconds(OpKind::update)}};
  if (streams_ == nullptr) return steps;
  const int first = num_slots_ - static_cast<int>(streams_->regathers.size());
  int slot = first;
  for (const Message& message : streams_->regathers)
    steps.push_back({.kind = Step::Kind::post, .slot = slot++, .message = &message});
  for (int i = first; i < slot; ++i) steps.push_back({.kind = Step::Kind::await, .slot = i});
  return steps;
}

}  // namespace braid
