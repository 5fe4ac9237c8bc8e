// braid profile model: times a model's layers on this machine, as far as a search can ask.

#include <fmt/core.h>

#include <chrono>
#include <memory>

#include "cli/common.h"
#include "cli/profile_common.h"
#include "cli/verb.h"
#include "planner/core/error.h"
#include "planner/core/text.h"
#include "planner/profile/binding.h"
#include "planner/profile/fingerprint.h"
#include "runtime/measure/hardware.h"
#include "runtime/measure/layers.h"
#include "runtime/measure/machine.h"

namespace braid::cli {
namespace {

struct ModelFlags {
  ProfileFlags common;
  std::string model, hardware, global_batch, sequence, memory, largest_message;
};

std::string layers_text(const Profile& profile, const measure::ModelCost& cost) {
  Table table({Align::left, Align::left, Align::right, Align::right, Align::right, Align::right,
               Align::right, Align::right});
  table.add(
      {"layer", "split", "samples", "forward", "by input", "by weights", "selective +", "full +"});
  const auto optional_time = [](const std::optional<Seconds>& time) {
    return time ? format_seconds(*time) : std::string();
  };
  for (const MeasuredLayer& layer : profile.layers)
    for (const ComputeSample& s : layer.compute) {
      std::string split = s.split == 1 ? "whole" : fmt::format("{} {}", name_of(s.kind), s.split);
      if (s.context > 1) split += fmt::format(" · context {}", s.context);
      table.add({layer.type, split, fmt::format("{}", s.samples), format_seconds(s.forward),
                 optional_time(s.backward_input), optional_time(s.backward_weight),
                 optional_time(s.selective), optional_time(s.full)});
    }
  return fmt::format(
      "{}\n{} splits and micro-batches of each layer timed; a search can ask for {}, and all there "
      "are would be {}.\n",
      table.text(terminal_options()), cost.measured, cost.reachable, cost.possible);
}

}  // namespace

Profile profile_model(measure::Bench& bench, const std::optional<Profile>& hardware,
                      const Model& model, const measure::HardwareOptions& machine,
                      const measure::ModelOptions& options, measure::ModelCost& cost) {
  Profile profile = hardware ? *hardware : measure::measure_hardware(bench, machine);
  if (!profile.cluster)
    throw Error({.what = "nothing was measured of the devices, so that layers cannot be chosen",
                 .where = "--limit",
                 .fix = "allow more seconds; running again goes on from the journal"});
  expect_limit_within(*profile.cluster, options.memory, "--memory");
  profile.name = fmt::format("{} on {}", model.name, profile.cluster->name);
  profile.source = "braid profile";
  cost = measure::measure_model(bench, profile, model, options);
  raise_peaks(profile);
  profile.noise = bench.noise();
  return profile;
}

namespace {

int run_model(const ModelFlags& flags, const std::optional<comm::Launch>& launch) {
  expect_writable(flags.common.out, "--out");
  const Place place =
      choose_place(flags.common.world, launch, asked_ranks(flags.common.world, launch));
  measure::HardwareOptions machine;
  machine.precision = read_precision(flags.common, place);
  machine.gradient_precision = read_gradients(flags.common.gradients, machine.precision);
  machine.backend = place.backend;
  if (!flags.largest_message.empty())
    machine.largest_message = read_largest_message(flags.largest_message);
  measure::ModelOptions options;
  options.precision = machine.precision;
  options.gradient_precision = machine.gradient_precision;
  options.global_batch = *read_count(flags.global_batch, "--global-batch", limits::kGlobalBatch);
  options.memory = read_memory(flags.memory).value_or(Bytes(0));
  read_format(flags.common.format);
  read_count(flags.common.limit, "--limit");  // a mistake in it is told before the ranks start
  const Model model = load_model(
      flags.model, read_count(flags.sequence, "--seq", limits::kTokens).value_or(0), place.first());
  std::optional<Profile> hardware;
  if (!flags.hardware.empty()) hardware = read_profile(flags.hardware);
  return run_world(place, [&](comm::Group& world, c10::Device device) {
    expect_precision(device, options.precision);
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Fact> facts = measure::facts_of(world, device, place.backend);
    if (hardware) measure::expect_taken_here(*hardware, facts, flags.hardware);
    const std::string what = fmt::format("model {}, batch {}, memory {}, {} and {}, hardware {}",
                                         fingerprint(to_json(model).dump()), options.global_batch,
                                         options.memory.value(), name_of(options.precision),
                                         name_of(options.gradient_precision),
                                         hardware ? fingerprint(to_json(*hardware).dump()) : "too");
    measure::Bench bench = open_bench(world, device, flags.common, place, facts, what);
    measure::ModelCost cost;
    const Profile profile = profile_model(bench, hardware, model, machine, options, cost);
    if (world.rank() > 0) return kOk;
    const Seconds took(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    const RenderOptions look = look_of(place);
    if (is_terminal(stderr)) std::fputs("\r\x1b[K", stderr);
    // The answer comes before a file that a full disk may refuse.
    const bool as_json = read_format(flags.common.format) == Format::json;
    if (as_json) {
      print(closing_json(bench, flags.common, profile, took));
    } else {
      const std::string found = hardware ? "" : hardware_text(profile, look) + "\n";
      print(found + layers_text(profile, cost) + "\n");
    }
    finish_bench(bench, flags.common, profile);
    if (!as_json) print(closing_text(bench, flags.common, profile, took));
    return kOk;
  });
}

}  // namespace

void add_profile_model(const Verb& profile, Run& run) {
  const auto flags = std::make_shared<ModelFlags>();
  const Verb verb = profile.add("model", "time a model's layers on this machine");
  const Options option(verb);
  add_profile_flags(option, flags->common);
  option("--model", flags->model, "FILE", "a Hugging Face config.json or a Braid model").required();
  option("--global-batch", flags->global_batch, "N", "samples of one step").required();
  option("--hardware", flags->hardware, "FILE",
         "what 'braid profile hardware' wrote; otherwise that is measured first");
  option("--max-message", flags->largest_message, "SIZE",
         "the largest to send, without --hardware (default 1GiB, or what fits)");
  option("--seq", flags->sequence, "N", "tokens of a sample; otherwise the model's own");
  option("--memory", flags->memory, "SIZE", "of one device; what cannot fit is not measured");
  verb.examples(
      {"braid profile model --ranks 4 --model configs/examples/tiny-llama.json --global-batch 16 "
       "--out profile.json",
       "braid plan --profile profile.json --global-batch 16"});
  verb.when_chosen([flags, &run] {
    run = [flags] {
      return launched(
          [&](const std::optional<comm::Launch>& launch) { return run_model(*flags, launch); });
    };
  });
}

}  // namespace braid::cli
