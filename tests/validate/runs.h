#pragma once
// Imagined runs for the tests: GPT layers on vTrain's single node, in its own form.

#include <string>
#include <vector>

#include "planner/validate/run.h"

namespace braid {

inline MeasuredRun gpt_run(int id, int tp, int pp, int dp, int micro_batch, int global_batch) {
  MeasuredRun run;
  run.id = std::to_string(id);
  run.set = "vtrain_single";
  run.gpu = "A100";
  run.hidden = 1024;
  run.layers = 12;
  run.heads = 16;
  run.seq = 1024;
  run.gpus = tp * pp * dp;
  run.tp = tp;
  run.pp = pp;
  run.dp = dp;
  run.micro_batch = micro_batch;
  run.global_batch = global_batch;
  run.recompute = "full";
  run.seconds = 1;
  return run;
}

// Every split of two to eight devices with the micro-batches that fit a batch of 64.
inline std::vector<MeasuredRun> gpt_runs() {
  std::vector<MeasuredRun> runs;
  for (const int tp : {1, 2, 4})
    for (const int pp : {1, 2, 4})
      for (const int dp : {1, 2})
        for (const int micro_batch : {1, 4})
          runs.push_back(gpt_run(static_cast<int>(runs.size()), tp, pp, dp, micro_batch, 64));
  return runs;
}

}  // namespace braid
