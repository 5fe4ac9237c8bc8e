// braid bench step: a training step on one device, held against what the device could do.

#include <fmt/core.h>

#include <cmath>
#include <memory>

#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "cli/world.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/text.h"
#include "planner/explain/utilisation.h"
#include "runtime/measure/step.h"
#include "runtime/models/model.h"
#include "runtime/ops/device.h"

namespace braid::cli {
namespace {

struct BenchFlags {
  WorldFlags world;
  std::string model, global_batch, sequence, micro_batches = "1", steps = "8", warm_up = "4";
  std::string recompute = "none", precision = "bf16", gradients = "fp32", peak, out;
  std::string format = "text";
  bool no_capture = false;
};

// Dense bf16, by the vendor's data sheets.
struct KnownPeak {
  const char* name;
  double teraflops;
};
constexpr KnownPeak kPeaks[] = {{"B200", 2250}, {"H200", 989}, {"H100", 989},
                                {"A100", 312},  {"A800", 312}, {"H800", 989}};

std::optional<double> peak_of(const BenchFlags& flags, Precision precision, c10::Device device) {
  if (const auto given = read_count(flags.peak, "--peak"))
    return static_cast<double>(*given) * 1e12;
  const auto facts = ops::device_facts(device);
  if (!facts || precision == Precision::fp32) return std::nullopt;
  const double times = precision == Precision::fp8 ? 2 : 1;
  for (const KnownPeak& known : kPeaks)
    if (facts->name.find(known.name) != std::string::npos) return times * known.teraflops * 1e12;
  return std::nullopt;
}

std::string milliseconds(double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); }

double mfu_of(const measure::StepTimes& times, double peak) {
  return braid::mfu_of(Flops(times.flops), Seconds(times.seconds), FlopsPerSecond(peak));
}

std::string mfu_text(const measure::StepTimes& times, std::optional<double> peak) {
  const double work = times.flops;
  if (!peak)
    return fmt::format("unknown: {:.3g} FLOPs a step, and --peak does not say what could be done",
                       work);
  return fmt::format(
      "{} = {:.4g} FLOPs / ({} · {:.0f} TFLOP/s); 3 × forward, causal attention "
      "counts the half that is used",
      format_percent(mfu_of(times, *peak)), work, milliseconds(times.seconds), *peak / 1e12);
}

std::string summary_text(const Model& model, const measure::StepTimes& times, double tokens,
                         const std::string& where, std::optional<double> peak) {
  Table table({Align::left, Align::left});
  table.add(
      {"model", fmt::format("{} · {} parameters · {} tokens a step · {}", printable(model.name),
                            format_count(static_cast<double>(parameters(model))), tokens, where)});
  table.add({"step", fmt::format("{} (from {} to {})", milliseconds(times.seconds),
                                 milliseconds(times.fastest), milliseconds(times.slowest))});
  table.add({"tokens/s", fmt::format("{:.0f}", tokens / times.seconds)});
  table.add({"MFU", mfu_text(times, peak)});
  table.add({"peak", times.peak ? fmt::format("{:.1f} GiB",
                                              static_cast<double>(*times.peak) / std::exp2(30))
                                : std::string("not counted on CPUs")});
  const measure::StepLimit& limit = times.limit;
  table.add({"limit", fmt::format("{} by themselves: products {}, attention {}, optimizer's {:.0f} "
                                  "bytes a parameter {}",
                                  milliseconds(limit.seconds()), milliseconds(limit.products),
                                  milliseconds(limit.attention), measure::kUpdateBytes,
                                  milliseconds(limit.optimizer))});
  table.add({"of the limit", format_percent(limit.seconds() / times.seconds)});
  table.add({"loss", fmt::format("{:.4f} to {:.4f} in {} steps", times.losses.front(),
                                 times.losses.back(), times.losses.size())});
  return table.text(terminal_options());
}

std::string operators_text(const measure::StepTimes& times) {
  Table table({Align::left, Align::right, Align::right, Align::right});
  table.add({"operator", "calls", "time", "share"});
  const auto share = [&](double seconds) { return format_percent(seconds / times.timed_seconds); };
  double named = 0;
  for (const measure::OperatorTime& one : times.operators) {
    named += one.seconds;
    table.add(
        {one.name, fmt::format("{}", one.calls), milliseconds(one.seconds), share(one.seconds)});
  }
  const double rest = times.timed_seconds - named;
  table.add({"between them", "", milliseconds(rest), share(rest)});
  return fmt::format("Where a step goes, with marks between operators ({}):\n\n{}",
                     milliseconds(times.timed_seconds), table.text(terminal_options()));
}

Json to_json(const Model& model, const measure::StepTimes& times, double tokens,
             std::optional<double> peak) {
  Json json = {{"format", "braid.bench_step"},
               {"version", 1},
               {"seconds", times.seconds},
               {"tokens_per_second", tokens / times.seconds},
               {"fastest_seconds", times.fastest},
               {"slowest_seconds", times.slowest},
               {"timed_seconds", times.timed_seconds},
               {"flops", times.flops},
               {"parameters", parameters(model)},
               {"limit",
                {{"products", times.limit.products},
                 {"attention", times.limit.attention},
                 {"optimizer", times.limit.optimizer}}},
               {"of_limit", times.limit.seconds() / times.seconds},
               {"losses", times.losses},
               {"operators", Json::array()}};
  if (times.peak) json["peak_bytes"] = *times.peak;
  if (peak) json["mfu"] = mfu_of(times, *peak);
  for (const measure::OperatorTime& one : times.operators)
    json["operators"].push_back(
        {{"name", one.name}, {"calls", one.calls}, {"seconds", one.seconds}});
  return json;
}

int run_step(const BenchFlags& flags, const std::optional<comm::Launch>& launch) {
  const Format format = read_format(flags.format);
  if (!flags.out.empty()) expect_writable(flags.out, "--out");
  measure::StepOptions options;
  options.batch = *read_count(flags.global_batch, "--global-batch", limits::kGlobalBatch);
  options.micro_batches = static_cast<int>(*read_count(flags.micro_batches, "--micro-batches"));
  options.steps = static_cast<int>(*read_count(flags.steps, "--steps"));
  options.warm_up = static_cast<int>(*read_count(flags.warm_up, "--warmup-steps"));
  options.precision = read_enum(flags.precision, "--precision", kPrecisions);
  options.gradients = read_gradients(flags.gradients, options.precision);
  options.capture = !flags.no_capture;
  options.stop_signal = &Interrupt::signal;
  constexpr Recompute kChoices[] = {Recompute::none, Recompute::selective, Recompute::full};
  options.recompute = read_enum(flags.recompute, "--recompute", kChoices);
  if (options.batch % options.micro_batches != 0)
    throw Error({.what = fmt::format("{} samples do not make {} equal micro-batches", options.batch,
                                     options.micro_batches),
                 .where = "--micro-batches",
                 .fix = "choose a divisor of --global-batch"});
  if (const auto ranks = read_count(flags.world.ranks, "--ranks", limits::kRanks);
      ranks.value_or(1) != 1)
    throw Error({.what = fmt::format("{} ranks, where one device is timed", *ranks),
                 .where = "--ranks",
                 .fix = "leave it out; 'braid train' times a plan of several devices"});
  const Place place = choose_place(flags.world, launch, 1);
  const Model model = load_model(
      flags.model, read_count(flags.sequence, "--seq", limits::kTokens).value_or(0), place.first());
  models::require_supported(model);
  return run_world(place, [&](comm::Group& world, c10::Device device) {
    expect_precision(device, options.precision);
    const std::optional<double> peak = peak_of(flags, options.precision, device);
    const measure::StepTimes times = measure::time_step(model, world, device, options);
    const auto tokens = static_cast<double>(options.batch * model.sequence);
    const auto facts = ops::device_facts(device);
    const bool narrow = options.gradients == Precision::bf16;
    const std::string where =
        fmt::format("{}{} on {}", name_of(options.precision), narrow ? ", gradients too," : "",
                    facts ? facts->name : std::string("the CPU"));
    const Json json = to_json(model, times, tokens, peak);
    if (format == Format::json) {
      print(json);
    } else {
      print(summary_text(model, times, tokens, where, peak) + "\n" + operators_text(times));
    }
    if (!flags.out.empty()) write_text(flags.out, json.dump(2) + "\n");
    if (peak)
      expect_possible(mfu_of(times, *peak), "--peak",
                      "give the device's peak in TFLOP/s: it is too low");
    return kOk;
  });
}

}  // namespace

void add_bench(const Verb& app, Run& run) {
  const Verb bench = app.add("bench", "hold this machine against what it could do");
  bench.needs_one_below();
  bench.examples({"braid bench step --model configs/models/gpt2.json --global-batch 32"});
  const auto flags = std::make_shared<BenchFlags>();
  const Verb verb = bench.add("step", "a training step on one device");
  const Options option(verb);
  option("--model", flags->model, "FILE", "a Hugging Face config.json or a Braid model").required();
  option("--global-batch", flags->global_batch, "N", "samples of one step").required();
  option("--seq", flags->sequence, "N", "tokens of a sample; otherwise the model's own");
  option("--micro-batches", flags->micro_batches, "N", "parts of the batch (default 1)");
  option("--recompute", flags->recompute, "NAME", "none (default), selective or full");
  option("--precision", flags->precision, "NAME", "bf16 (default), fp32 or fp8");
  option("--gradients", flags->gradients, "NAME", kGradientsHelp);
  option("--steps", flags->steps, "N", "steps that count (default 8)");
  option("--warmup-steps", flags->warm_up, "N",
         "steps ahead of them, which do not count (default 4)");
  option("--peak", flags->peak, "N", "TFLOP/s of the device; otherwise its data sheet's");
  option("--format", flags->format, "NAME", "text (default) or json");
  option("--out", flags->out, "FILE", "write the numbers there, as JSON");
  verb.flag("--no-capture", flags->no_capture,
            "launch every operator of every step, not the steady step at once");
  add_world_flags(option, flags->world, "must be 1: a step of one device");
  verb.examples(
      {"braid bench step --device cuda --model configs/models/gpt2.json --global-batch 32 "
       "--seq 1024"});
  verb.when_chosen([flags, &run] {
    run = [flags] {
      return launched(
          [&](const std::optional<comm::Launch>& launch) { return run_step(*flags, launch); });
    };
  });
}

}  // namespace braid::cli
