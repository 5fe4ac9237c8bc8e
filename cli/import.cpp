// braid import: another system's measurements as a Braid profile.

#include <fmt/core.h>

#include <memory>

#include "cli/common.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/profile/galvatron_import.h"

namespace braid::cli {
namespace {

constexpr const char* kExample =
    "braid import galvatron --hardware hardware --model-profile llama-7b --layers 4096:2048:32 "
    "--nodes 1 --gpus-per-node 8 --out profile.json";

struct GalvatronFlags {
  std::string hardware, model, layers, nodes, devices_per_node, out;
  std::string format = "text";
};

int run_galvatron(const GalvatronFlags& flags) {
  const Format format = read_format(flags.format);
  GalvatronSource source;
  source.layers = parse_galvatron_layers(flags.layers);
  source.nodes = static_cast<int>(read_count(flags.nodes, "--nodes", limits::kNodes).value_or(1));
  source.devices_per_node = static_cast<int>(
      read_count(flags.devices_per_node, "--gpus-per-node", limits::kNodeDevices).value_or(8));
  source.hardware = flags.hardware;
  source.model = flags.model;
  expect_writable(flags.out, "--out");
  const Profile profile = import_galvatron(source);
  write_text(flags.out, to_json(profile).dump(1) + "\n");
  if (format == Format::json) {
    print(Json{{"status", "ok"},
               {"file", flags.out},
               {"layer_types", profile.layers.size()},
               {"bandwidths", profile.bandwidths.size()},
               {"collectives", profile.collectives.size()}});
    return kOk;
  }
  print(fmt::format("The profile is {}: {} layer types, {} bandwidths, {} collectives.\n",
                    place_of(flags.out), profile.layers.size(), profile.bandwidths.size(),
                    profile.collectives.size()));
  return kOk;
}

}  // namespace

void add_import(const Verb& app, Run& run) {
  const Verb verb = app.add("import", "turn another system's measurements into a profile");
  verb.needs_one_below();
  verb.examples({kExample});
  const auto flags = std::make_shared<GalvatronFlags>();
  const Verb galvatron = verb.add("galvatron", "files that Hetu-Galvatron's profiler wrote");
  const Options option(galvatron);
  option("--hardware", flags->hardware, "FOLDER",
         "allreduce_bandwidth_*, p2p_bandwidth_*, sp_time_*")
      .required();
  option("--model-profile", flags->model, "FOLDER", "computation_profiling_*, memory_profiling_*")
      .required();
  option("--layers", flags->layers, "H:S:N", "hidden:sequence:layers of each type, with commas")
      .required();
  option("--nodes", flags->nodes, "N", "nodes that were profiled (default 1)");
  option("--gpus-per-node", flags->devices_per_node, "N", "devices of a node (default 8)");
  option("--format", flags->format, "NAME", "text (default) or json");
  option("--out", flags->out, "FILE", "the profile to write").required();
  galvatron.examples(
      {kExample, "braid plan --profile profile.json --cost galvatron --global-batch 64"});
  galvatron.when_chosen([flags, &run] { run = [flags] { return run_galvatron(*flags); }; });
}

}  // namespace braid::cli
