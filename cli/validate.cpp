// braid validate: prices training runs that others measured, and says how close that came.

#include <fmt/core.h>

#include <chrono>
#include <memory>

#include "cli/common.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/validate/report.h"

namespace braid::cli {
namespace {

struct ValidateFlags {
  std::string runs, plot, worst, folds;
  std::string format = "text";
  std::vector<std::string> sets;
  bool fit = false;
};

std::vector<MeasuredRun> chosen_runs(const ValidateFlags& flags) {
  std::vector<MeasuredRun> runs = read_runs(flags.runs);
  if (flags.sets.empty()) return runs;
  std::vector<std::string> known;
  for (const MeasuredRun& run : runs)
    if (std::ranges::find(known, run.set) == known.end()) known.push_back(run.set);
  for (const std::string& set : flags.sets)
    if (std::ranges::find(known, set) == known.end())
      throw Error({.what = fmt::format("there is no set '{}' in {}", set, flags.runs),
                   .where = "--set",
                   .fix = fmt::format("choose from {}", join(known, ", "))});
  std::erase_if(runs, [&](const MeasuredRun& run) {
    return std::ranges::find(flags.sets, run.set) == flags.sets.end();
  });
  return runs;
}

FitOptions with_progress(const std::string& what) {
  if (!is_terminal(stderr)) return {};
  return {.progress = [what](int round, double loss) {
    fmt::print(stderr, "\r  fitting {}: round {}, loss {:.1f}   ", what, round + 1, loss);
  }};
}

int run_validate(const ValidateFlags& flags) {
  const Format format = read_format(flags.format);
  if (!flags.plot.empty()) expect_writable(flags.plot, "--plot");
  const auto worst = read_count(flags.worst, "--worst");
  const auto folds = read_count(flags.folds, "--cross-validate", {2, 100});
  if (folds && flags.fit)
    throw Error({.what = "--fit and --cross-validate answer different questions",
                 .where = "--fit",
                 .fix = "give one of them"});
  const std::vector<MeasuredRun> runs = chosen_runs(flags);
  const auto start = std::chrono::steady_clock::now();
  std::vector<RunSetup> setups = described_setups();
  Pricing pricing;
  std::vector<Fold> dealt;  // keeps the runs that the pricing points to
  if (folds) {
    dealt = cross_validate(runs, static_cast<int>(*folds), with_progress("a fold"));
    for (const Fold& fold : dealt) {
      Pricing part = price_runs(fold.runs, fold.setups);
      std::ranges::move(part.figures, std::back_inserter(pricing.figures));
      std::ranges::move(part.unpriced, std::back_inserter(pricing.unpriced));
      std::ranges::move(part.refused, std::back_inserter(pricing.refused));
    }
  } else {
    if (flags.fit)
      for (const Calibration& calibration : calibrations())
        fit(setups, calibration, runs, with_progress(calibration.setups.front()));
    pricing = price_runs(runs, setups);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const ReserveScore reserves = score_reserves(runs, setups);
  const auto write_plot = [&] {
    if (!flags.plot.empty()) write_text(flags.plot, scatter_svg(pricing));
  };
  if (format == Format::json) {
    Json answer = scores_json(pricing, reserves);
    if (flags.fit) answer["parameters"] = parameters_json(setups);
    print(answer);
    write_plot();
    return kOk;
  }
  const RenderOptions look = terminal_options();
  if (flags.fit) print(render_parameters(setups, look) + '\n');
  print(fmt::format("  {} runs in {}{}\n\n", runs.size(), format_seconds(Seconds(took.count())),
                    folds ? fmt::format(", each predicted by a fit without its fold of {}", *folds)
                          : std::string()));
  print(render_scores(pricing, reserves, look));
  if (worst) print('\n' + render_worst(pricing, static_cast<int>(*worst), look));
  write_plot();
  if (!flags.plot.empty()) print(fmt::format("\n  The plot is {}.\n", place_of(flags.plot)));
  return kOk;
}

}  // namespace

void add_validate(const Verb& app, Run& run) {
  const auto flags = std::make_shared<ValidateFlags>();
  const Verb verb = app.add("validate", "price training runs that others measured and compare");
  const Options option(verb);
  option("runs", flags->runs, "FILE", "measured runs: {\"rows\": [...]}").required();
  option("--set", flags->sets, "NAME", "only this set of runs (again for more)").one_at_a_time();
  option("--worst", flags->worst, "N", "list the N runs that were predicted worst");
  option("--plot", flags->plot, "FILE", "write a scatter plot (SVG)");
  option("--cross-validate", flags->folds, "K",
         "fit anew without each of K folds and predict that fold");
  verb.flag("--fit", flags->fit, "fit the figures of every setup to these runs first");
  option("--format", flags->format, "NAME", "text (default) or json");
  verb.examples({"braid validate runs.json --worst 10 --plot runs.svg"});
  verb.when_chosen([flags, &run] { run = [flags] { return run_validate(*flags); }; });
}

}  // namespace braid::cli
