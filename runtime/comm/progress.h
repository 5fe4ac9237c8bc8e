#pragma once
// What ranks have begun, for the moment when one waits in vain: it reads the others' logs and says
// who is elsewhere. For backends whose devices do not compare operations as they run them.

#include <deque>
#include <map>
#include <optional>

#include "runtime/comm/operation.h"

namespace braid::comm {

// A channel is a group's collectives, or its messages from one rank to another.
class ProgressLog {
 public:
  void begin(const std::string& channel, const Operation& operation);

  // How it was described when it began; nothing where it is forgotten or has not begun.
  std::optional<std::string> at(const std::string& channel, std::int64_t number) const;
  std::int64_t begun(const std::string& channel) const;  // how many
  const std::string& latest() const { return latest_; }  // of all channels

  // What the rank's device is at, where the host runs ahead of it; empty: not known.
  void device_is(std::string what);
  const std::string& device() const { return device_; }

  // One line for each; names with line breaks or tabs have them replaced.
  std::string to_text() const;
  static ProgressLog from_text(std::string_view text);

 private:
  struct Entry {
    std::int64_t number = 0;
    std::string text;
  };
  void append(const std::string& channel, Entry entry);

  std::map<std::string, std::deque<Entry>> channels_;  // the last few of each
  std::string latest_, device_;
};

struct Waiting {
  int rank = 0;  // all of the world
  std::vector<int> members;
  std::string channel;
  Operation operation;
};

// Ranks that are not in `logs` did not answer.
Mistake diagnosis(const Waiting& waiting, const std::map<int, ProgressLog>& logs,
                  std::chrono::milliseconds timeout);

}  // namespace braid::comm
