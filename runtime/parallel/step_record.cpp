#include "runtime/parallel/step_record.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "planner/core/error.h"

namespace braid::parallel {

namespace {

Seconds common(const Interval& a, const Interval& b) {
  return std::max(Seconds(0), std::min(a.end, b.end) - std::max(a.begin, b.begin));
}

// All times at which compute stood still, in order. They do not overlap: one stream computes.
std::vector<Interval> standstills(const StepRecord& record) {
  std::vector<Interval> all;
  for (const CommSpan& span : record.comm)
    all.insert(all.end(), span.exposed.begin(), span.exposed.end());
  std::ranges::sort(all, {}, &Interval::begin);
  return all;
}

// What is left of a stretch of compute.
std::vector<Interval> working(const Interval& span, const std::vector<Interval>& standstill) {
  std::vector<Interval> pieces;
  Seconds now = span.begin;
  auto gap = std::ranges::upper_bound(standstill, span.begin, {}, &Interval::end);
  for (; gap != standstill.end() && gap->begin < span.end; ++gap) {
    if (gap->begin > now) pieces.push_back({now, gap->begin});
    now = std::max(now, gap->end);
  }
  if (span.end > now) pieces.push_back({now, span.end});
  return pieces;
}

Seconds& counter(StepTerms& terms, Phase phase) {
  switch (phase) {
    case Phase::forward:
    case Phase::backward:
    case Phase::backward_input:
    case Phase::backward_weight:
      return terms.compute;
    case Phase::redistribute:
      return terms.redistribute.exposed;
    case Phase::reduce:
      return terms.reduce.exposed;
    case Phase::update:
      return terms.update;
  }
  internal_failure("unknown phase", std::source_location::current());
}

Seconds total(const std::vector<Interval>& intervals) {
  Seconds sum;
  for (const Interval& interval : intervals) sum += interval.length();
  return sum;
}

std::optional<OpKind> pass_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return OpKind::forward;
    case Phase::backward:
      return OpKind::backward;
    case Phase::backward_input:
      return OpKind::backward_input;
    case Phase::backward_weight:
      return OpKind::backward_weight;
    case Phase::redistribute:
    case Phase::reduce:
    case Phase::update:
      return std::nullopt;
  }
  internal_failure("unknown phase", std::source_location::current());
}

std::string joined(const std::string& layer, const std::string& what) {
  return layer.empty() ? what : fmt::format("{} {}", layer, what);
}

std::string label(const ComputeSpan& span) {
  const std::optional<OpKind> pass = pass_of(span.phase);
  return joined(span.layer, pass ? phase_label(*pass, span.micro_batch) : name_of(span.phase));
}

std::string label(const CommSpan& span) {
  if (!span.label.empty()) return span.label;
  return span.layer.empty() ? span.operation : joined(span.layer, braid::name_of(span.kind));
}

}  // namespace

std::string name_of(Phase phase) {
  if (const std::optional<OpKind> pass = pass_of(phase)) return braid::name_of(*pass);
  switch (phase) {
    case Phase::redistribute:
      return "redistribute";
    case Phase::reduce:
      return "reduce";
    default:
      return "update";
  }
}

StepTerms terms_of(const StepRecord& record, int rank, const SendTimes& sent) {
  StepTerms terms;
  const std::vector<Interval> standstill = standstills(record);
  for (const ComputeSpan& span : record.compute)
    counter(terms, span.phase) += total(working(span.time, standstill));
  std::map<std::pair<int, std::string>, std::size_t> received;
  for (const CommSpan& span : record.comm) {
    const Seconds exposed = total(span.exposed);
    CommTime& term = terms.of(span.kind);
    switch (span.role) {
      case Role::together:
        term += {exposed, span.time.length() - exposed};
        break;
      case Role::sends:  // counts where it arrives
        term.exposed += exposed;
        break;
      case Role::receives: {
        const auto times = sent.find({span.peer, rank, span.operation});
        const std::size_t nth = received[{span.peer, span.operation}]++;
        const bool known = times != sent.end() && nth < times->second.size();
        const Interval under_way{known ? times->second[nth] : span.time.begin, span.time.end};
        Seconds moving;
        for (const Interval& wait : span.exposed) moving += common(wait, under_way);
        term += {moving, common(span.time, under_way) - moving};
        terms.bubble += exposed - moving;
        break;
      }
      case Role::all_stages:
        terms.bubble += exposed;
        break;
    }
  }
  terms.other.exposed += record.time.length() - terms.step();
  return terms;
}

TraceProcess trace_of(const std::vector<StepRecord>& steps, std::string name) {
  TraceProcess process{.name = std::move(name), .compute = {}, .communication = {}};
  for (const StepRecord& step : steps) {
    const std::vector<Interval> standstill = standstills(step);
    for (const ComputeSpan& span : step.compute)
      for (const Interval& piece : working(span.time, standstill))
        process.compute.push_back({.name = label(span),
                                   .category = name_of(span.phase),
                                   .start = piece.begin,
                                   .end = piece.end,
                                   .micro_batch = span.micro_batch});
    for (const CommSpan& span : step.comm)
      process.communication.push_back({.name = label(span),
                                       .category = braid::name_of(span.kind),
                                       .start = span.time.begin,
                                       .end = span.time.end,
                                       .micro_batch = span.micro_batch,
                                       .operation = span.operation});
  }
  return process;
}

}  // namespace braid::parallel
