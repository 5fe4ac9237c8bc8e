#pragma once
// A training run that somebody measured and published: what was trained, on what, how it was split,
// and what came out. Most sources leave something unsaid; that is a zero or an empty string here.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace braid {

struct MeasuredRank {
  int stage = 0;
  double allocated = 0;  // bytes, the peak
  double reserved = 0;
};

struct MeasuredRun {
  std::string id;     // a number, or a name
  std::string set;    // one machine and one program; runs of a set are comparable
  std::string gpu;    // as the source writes it
  std::string model;  // a name, where the shape is not given
  int hidden = 0, layers = 0, heads = 0, seq = 0, vocab = 0;

  int gpus = 0;
  int tp = 0, pp = 0, cp = 0, dp = 0;
  int interleave = 1;
  int global_batch = 0;
  int micro_batch = 0;
  int local_batch = 0;          // samples of one data-parallel replica, in all
  std::vector<int> partition;   // first item of each stage, and one past the last
  std::vector<int> stage_gpus;  // devices of each stage
  std::string recompute;        // none, selective, full, and with "+SP" or "SP" sequence parallel
  std::string technique;        // torchtitan's words: FSDP, compile, fp8, AsyncTP, …
  std::optional<bool> flash;

  // What was measured; empty where it was not.
  std::optional<double> seconds;      // one iteration
  std::optional<double> tokens;       // a second and device
  std::optional<double> samples;      // a second, all devices (Megatron-LM's of several systems)
  std::optional<double> states;       // bytes of parameters and optimizer of one device
  std::optional<double> activations;  // bytes of one device
  std::optional<double> activation_share;  // of plain tensor parallelism's, in percent
  std::optional<double> peak;              // bytes of one device
  std::vector<MeasuredRank> ranks;
  bool failed = false;  // it did not run
  // A figure of the source that no run can have, such as zero devices; empty where there is none.
  std::string nonsense;
};

// Reads a file {"rows": [...]}; keys that mean nothing to us are left alone.
std::vector<MeasuredRun> read_runs(const std::filesystem::path& file);

}  // namespace braid
