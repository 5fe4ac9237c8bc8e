// braid calibrate: corrects a profile by what runs of its plans took.

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cli/common.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/calibration.h"
#include "planner/explain/comparison.h"

namespace braid::cli {
namespace {

struct CalibrateFlags {
  std::string profile, out;
  std::string format = "text";
  std::vector<std::string> reports, comparisons;
};

std::vector<ReportSource> read_sources(const CalibrateFlags& flags) {
  std::vector<ReportSource> sources;
  sources.reserve(flags.reports.size());
  for (const std::string& file : flags.reports) sources.push_back({file, read_report(file)});
  for (const std::string& file : flags.comparisons)
    for (const ComparedPlan& compared : read_comparison(file).plans)
      if (compared.measured)
        sources.push_back(
            {fmt::format("{}: {}", file, short_name(compared.plan)), compared.report()});
  if (sources.empty())
    throw Error({.what = "there is no run to calibrate with",
                 .where = "--report, --comparison",
                 .fix = "pass what 'braid train --out' or 'braid compare --out' wrote"});
  for (const ReportSource& source : sources)
    if (!(source.report.step > Seconds(0)))
      throw Error({.what = "the run has no step that counts",
                   .where = source.name,
                   .fix = "train for more steps"});
  return sources;
}

std::string runs_text(const std::vector<CalibrationRow>& rows) {
  Table table({Align::left, Align::right, Align::right, Align::right});
  table.add({"run", "measured", "error before", "after"});
  for (const CalibrationRow& row : rows)
    table.add({printable(row.name), format_seconds(row.measured),
               format_error(row.before / row.measured - 1),
               format_error(row.after / row.measured - 1)});
  return table.text(terminal_options());
}

struct NamedFactor {
  const char* name;
  CorrectionFactor factor;
};
constexpr NamedFactor kNamed[] = {
    {"compute", &Correction::compute},   {"tensor", &Correction::tensor},
    {"context", &Correction::context},   {"sharding", &Correction::sharding},
    {"transfer", &Correction::transfer}, {"update", &Correction::update},
};

// How far a term's prediction lay off where runs recorded it: the sums of all.
std::string term_errors(const std::vector<CalibrationCase>& cases, CorrectionFactor factor,
                        double before, double after) {
  Seconds predicted, measured;
  for (const CalibrationCase& c : cases)
    for (const MeasuredTerm& term : c.terms)
      if (term.factor == factor) {
        predicted += term.predicted;
        measured += term.measured;
      }
  if (!(measured > Seconds(0)) || !(predicted > Seconds(0))) return "";
  return fmt::format("{} before, {} after", format_error(before * predicted / measured - 1),
                     format_error(after * predicted / measured - 1));
}

std::string factors_text(const std::vector<CalibrationCase>& cases, const Correction& before,
                         const Correction& after) {
  Table table({Align::left, Align::right, Align::right, Align::left});
  table.add({"term", "factor before", "after", "error of the term itself"});
  for (const NamedFactor& named : kNamed)
    table.add({named.name, fmt::format("{:.3f}", before.*named.factor),
               fmt::format("{:.3f}", after.*named.factor),
               term_errors(cases, named.factor, before.*named.factor, after.*named.factor)});
  table.add(
      {"each step", format_seconds(before.step_overhead), format_seconds(after.step_overhead), ""});
  return table.text(terminal_options());
}

Json correction_json(const Correction& correction) {
  Json json;
  for (const NamedFactor& named : kNamed) json[named.name] = correction.*named.factor;
  json["step_overhead_seconds"] = correction.step_overhead.value();
  return json;
}

Json calibration_json(const std::vector<CalibrationRow>& rows,
                      const std::vector<CalibrationCase>& cases, const Correction& before,
                      const Correction& after) {
  Json runs = Json::array();
  for (const CalibrationRow& row : rows)
    runs.push_back({{"run", row.name},
                    {"measured_seconds", row.measured.value()},
                    {"before_seconds", row.before.value()},
                    {"after_seconds", row.after.value()}});
  return {{"status", "ok"},
          {"runs", std::move(runs)},
          {"before", correction_json(before)},
          {"after", correction_json(after)},
          {"mean_error_before", mean_error(cases, before)},
          {"mean_error_after", mean_error(cases, after)}};
}

int run_calibrate(const CalibrateFlags& flags) {
  const Format format = read_format(flags.format);
  expect_writable(flags.out, "--out");
  const LoadedProfile loaded = load_profile(flags.profile);
  Profile profile = loaded.profile;
  const std::vector<ReportSource> sources = read_sources(flags);
  const std::vector<CalibrationCase> cases = calibration_cases(profile, sources);
  for (const ReportSource& source : sources) {
    const Plan& plan = source.report.plan;
    expect_holds(loaded, plan.model, plan.cluster, plan.precision);
  }
  const Correction before = profile.correction.value_or(Correction{});
  const Correction after = calibrate(cases);
  profile.correction = after;
  if (format == Format::json) {
    print(calibration_json(calibration_rows(sources, cases, before, after), cases, before, after));
    write_text(flags.out, to_json(profile).dump(1) + "\n");
    return kOk;
  }
  print(runs_text(calibration_rows(sources, cases, before, after)) + "\n" +
        factors_text(cases, before, after) + "\n" +
        fmt::format("Mean error of a step: {} before, {} after, over {} run{}.\n",
                    format_percent(mean_error(cases, before)),
                    format_percent(mean_error(cases, after)), cases.size(),
                    cases.size() == 1 ? "" : "s"));
  write_text(flags.out, to_json(profile).dump(1) + "\n");
  print(fmt::format("The corrected profile is {}.\n", place_of(flags.out)));
  return kOk;
}

}  // namespace

void add_calibrate(const Verb& app, Run& run) {
  const auto flags = std::make_shared<CalibrateFlags>();
  const Verb verb = app.add("calibrate", "correct a profile by what runs of its plans took");
  const Options option(verb);
  option("--profile", flags->profile, "FILE", "the profile that the plans were made from")
      .required();
  option("--report", flags->reports, "FILE", "what 'braid train --out' wrote; several");
  option("--comparison", flags->comparisons, "FILE", "what 'braid compare --out' wrote; several");
  option("--format", flags->format, "NAME", "text (default) or json");
  option("--out", flags->out, "FILE", "the corrected profile to write").required();
  verb.examples(
      {"braid calibrate --profile profile.json --report run1/report.json "
       "run2/report.json --out calibrated.json"});
  verb.when_chosen([flags, &run] { run = [flags] { return run_calibrate(*flags); }; });
}

}  // namespace braid::cli
