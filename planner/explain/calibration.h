#pragma once
// Reports of runs as cases that a profile is calibrated with.

#include <string>
#include <vector>

#include "planner/cost/calibrate.h"
#include "planner/explain/run_report.h"

namespace braid {

// Where a report came from, for messages.
struct ReportSource {
  std::string name;
  RunReport report;
};

// Throws Error where a run was of another model, machine or precision than the profile, with what
// differs. The cases refer to the profile and to the reports.
//
// Of the terms only those count that the device does while nothing else runs: how long a transfer
// beside compute took is not seen, only what compute had to wait for it, and that is no multiple of
// a factor.
std::vector<CalibrationCase> calibration_cases(const Profile& profile,
                                               const std::vector<ReportSource>& reports);

// One run under the profile with and without a correction.
struct CalibrationRow {
  std::string name;
  Seconds measured, before, after;
};
std::vector<CalibrationRow> calibration_rows(const std::vector<ReportSource>& reports,
                                             const std::vector<CalibrationCase>& cases,
                                             const Correction& before, const Correction& after);

}  // namespace braid
