// braid profile: measures this machine, and models on it.

#include <fmt/core.h>

#include <chrono>
#include <memory>

#include "cli/common.h"
#include "cli/profile_common.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/core/text.h"
#include "runtime/measure/hardware.h"
#include "runtime/measure/machine.h"

namespace braid::cli {
namespace {

struct HardwareFlags {
  ProfileFlags common;
  std::string largest_message, memory;
};

measure::HardwareOptions read_options(const HardwareFlags& flags, const Place& place) {
  measure::HardwareOptions options;
  options.precision = read_precision(flags.common, place);
  options.gradient_precision = read_gradients(flags.common.gradients, options.precision);
  options.backend = place.backend;
  options.memory = read_memory(flags.memory).value_or(Bytes(0));
  if (!flags.largest_message.empty())
    options.largest_message = parse_bytes(flags.largest_message, "--max-message");
  constexpr Bytes kLeast(1 << 16);
  if (options.largest_message < kLeast)
    throw Error({.what = fmt::format("messages of at most {} say nothing about bandwidth",
                                     format_bytes(options.largest_message)),
                 .where = "--max-message",
                 .fix = fmt::format("write at least {}", format_bytes(kLeast))});
  return options;
}

void measure_as(comm::Group& world, c10::Device device, const HardwareFlags& flags,
                const Place& place, const measure::HardwareOptions& options) {
  expect_precision(device, options.precision);
  const auto begin = std::chrono::steady_clock::now();
  const std::string what = fmt::format("hardware, {} and {}", name_of(options.precision),
                                       name_of(options.gradient_precision));
  measure::Bench bench = open_bench(world, device, flags.common, place,
                                    measure::facts_of(world, device, place.backend), what);
  const Profile profile = measure::measure_hardware(bench, options);
  if (world.rank() > 0) return;
  const Seconds took(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  const RenderOptions look = look_of(place);
  if (!place.launch && is_terminal(stderr)) std::fputs("\r\x1b[K", stderr);  // the bar
  // The answer comes before a file that a full disk may refuse.
  const bool as_json = read_format(flags.common.format) == Format::json;
  if (as_json) {
    print(closing_json(bench, flags.common, profile, took));
  } else {
    print(hardware_text(profile, look) + "\n");
  }
  finish_bench(bench, flags.common, profile);
  if (!as_json) print(closing_text(bench, flags.common, profile, took));
}

int run_hardware(const HardwareFlags& flags, const std::optional<comm::Launch>& launch) {
  expect_writable(flags.common.out, "--out");
  const Place place =
      choose_place(flags.common.world, launch, asked_ranks(flags.common.world, launch));
  const measure::HardwareOptions options = read_options(flags, place);
  read_format(flags.common.format);
  read_count(flags.common.limit, "--limit");  // a mistake in it is told before the ranks start
  return run_world(place, [&](comm::Group& world, c10::Device device) {
    measure_as(world, device, flags, place, options);
    return kOk;
  });
}

}  // namespace

Bytes read_largest_message(const std::string& text) {
  const Bytes largest = parse_bytes(text, "--max-message");
  constexpr Bytes kLeast(std::int64_t{64} * 1024);
  if (largest < kLeast)
    throw Error({.what = fmt::format("messages of at most {} say nothing about bandwidth",
                                     format_bytes(largest)),
                 .where = "--max-message",
                 .fix = fmt::format("write at least {}", format_bytes(kLeast))});
  return largest;
}

void add_profile_hardware(const Verb& profile, Run& run) {
  const auto flags = std::make_shared<HardwareFlags>();
  const Verb verb = profile.add("hardware", "time devices, links and how they disturb each other");
  const Options option(verb);
  add_profile_flags(option, flags->common);
  option("--max-message", flags->largest_message, "SIZE",
         "the largest to send (default 1GiB, or what fits)");
  option("--memory", flags->memory, "SIZE", "of one device; otherwise all it has");
  verb.examples({"braid profile hardware --ranks 4 --out hardware.json",
                 "mpirun -n 8 braid profile hardware --out hardware.json"});
  verb.remark("Started again after an interruption, it goes on from its journal.");
  verb.when_chosen([flags, &run] {
    run = [flags] {
      return launched(
          [&](const std::optional<comm::Launch>& launch) { return run_hardware(*flags, launch); });
    };
  });
}

void add_profile(const Verb& app, Run& run) {
  const Verb verb = app.add("profile", "measure this machine, and a model on it");
  verb.needs_one_below();
  verb.examples({"braid profile hardware --ranks 4 --out hardware.json",
                 "braid profile model --ranks 4 --model configs/examples/tiny-llama.json "
                 "--global-batch 16 --hardware hardware.json --out profile.json"});
  add_profile_hardware(verb, run);
  add_profile_model(verb, run);
}

}  // namespace braid::cli
