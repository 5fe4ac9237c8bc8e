#include "runtime/comm/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace braid::comm {

namespace {

std::string on_one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return text;
}

// Up to the separator, which goes too.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

// Where another rank is; nothing where it is in the same operation or beyond.
std::optional<std::string> whereabouts(const Waiting& waiting, int rank, const ProgressLog* log) {
  if (log == nullptr) return fmt::format("rank {} does not answer", rank);
  const std::int64_t number = waiting.operation.number;
  if (log->begun(waiting.channel) <= number) {
    return fmt::format("rank {} has not begun it, and last began {}", rank,
                       log->latest().empty() ? "nothing" : log->latest());
  }
  const auto text = log->at(waiting.channel, number);
  if (text && *text != on_one_line(describe(waiting.operation))) {
    return fmt::format("rank {} is at {} instead", rank, *text);
  }
  return {};
}

}  // namespace

void ProgressLog::begin(const std::string& channel, const Operation& operation) {
  append(on_one_line(channel), {operation.number, on_one_line(describe(operation))});
}

void ProgressLog::append(const std::string& channel, Entry entry) {
  constexpr std::size_t kKept = 32;
  latest_ = entry.text;
  std::deque<Entry>& entries = channels_[channel];
  entries.push_back(std::move(entry));
  if (entries.size() > kKept) entries.pop_front();
}

void ProgressLog::device_is(std::string what) { device_ = on_one_line(std::move(what)); }

std::optional<std::string> ProgressLog::at(const std::string& channel, std::int64_t number) const {
  const auto entries = channels_.find(on_one_line(channel));
  if (entries == channels_.end()) return {};
  const auto found = std::ranges::find(entries->second, number, &Entry::number);
  if (found == entries->second.end()) return {};
  return found->text;
}

std::int64_t ProgressLog::begun(const std::string& channel) const {
  const auto entries = channels_.find(on_one_line(channel));
  return entries == channels_.end() ? 0 : entries->second.back().number + 1;
}

std::string ProgressLog::to_text() const {
  std::string text = latest_ + '\n' + device_ + '\n';
  for (const auto& [channel, entries] : channels_) {
    for (const Entry& entry : entries) {
      text += fmt::format("{}\t{}\t{}\n", entry.number, channel, entry.text);
    }
  }
  return text;
}

ProgressLog ProgressLog::from_text(std::string_view text) {
  ProgressLog log;
  const std::string latest(take(text, '\n'));
  log.device_ = take(text, '\n');
  while (!text.empty()) {
    std::string_view line = take(text, '\n');
    const std::string_view digits = take(line, '\t');
    std::int64_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const std::string channel(take(line, '\t'));
    log.append(channel, {number, std::string(line)});
  }
  log.latest_ = latest;
  return log;
}

Mistake diagnosis(const Waiting& waiting, const std::map<int, ProgressLog>& logs,
                  std::chrono::milliseconds timeout) {
  std::string others;
  for (const int member : waiting.members) {
    if (member == waiting.rank) continue;
    const auto log = logs.find(member);
    const auto place = whereabouts(waiting, member, log == logs.end() ? nullptr : &log->second);
    if (place) others += "; " + *place;
  }
  std::string devices;
  for (const auto& [rank, log] : logs)
    if (!log.device().empty())
      devices += fmt::format("; the GPU of rank {} {}", rank, log.device());
  Mistake mistake{.what = fmt::format("rank {} waited {} ms in {}", waiting.rank, timeout.count(),
                                      describe(waiting.operation)),
                  .where = fmt::format("group \"{}\"", waiting.operation.group),
                  .fix = "every rank of a group must call the same operations in the same order"};
  if (others.empty()) {
    mistake.what += "; all its ranks have begun it";
    mistake.fix = "look for a failed device or link, or for devices that are busy with other work";
  } else {
    mistake.what += others;
  }
  mistake.what += devices;
  return mistake;
}

}  // namespace braid::comm
