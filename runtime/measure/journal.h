#pragma once
// What a measuring run has found so far, on disk after every finding, so that a killed run goes on
// where it was. One JSON object a line: the first says what the run measures, the others are
// findings.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/profile/profile.h"

namespace braid::measure {

// Numbers that one measurement yields, and how far its repetitions lay apart.
struct Finding {
  std::vector<double> values;
  double spread = 0;
  bool operator==(const Finding&) const = default;
};

class Journal {
 public:
  // In memory alone.
  Journal() = default;
  // Reads what is there. A journal of a run under other facts is begun anew; a last line that was
  // cut off is dropped. Throws Error where the file cannot be written or is no journal.
  Journal(std::filesystem::path file, const std::vector<Fact>& facts);

  std::optional<Finding> find(const std::string& key) const;
  void add(const std::string& key, const Finding& finding);  // throws Error where writing fails
  std::size_t size() const { return findings_.size(); }
  const std::filesystem::path& file() const { return file_; }  // empty: none
  // The run is complete: the file goes.
  void remove();

  // All findings as text and back, for ranks that have no file.
  std::string text() const;
  static Journal from_text(const std::string& text);

 private:
  std::filesystem::path file_;  // empty: none
  std::map<std::string, Finding> findings_;
};

}  // namespace braid::measure
