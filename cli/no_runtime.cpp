// Stands in for the verbs that need libtorch where the runtime is not built.

#include "cli/verb.h"
#include "cli/verbs.h"
#include "cli/version.h"
#include "planner/core/error.h"

namespace braid::cli {
namespace {

void add_absent(const Verb& app, Run& run, const std::string& name, const char* text) {
  const Verb verb = app.add(name, text);
  verb.takes_anything();
  verb.examples({"braid " + name});
  verb.when_chosen([name, &run] {
    run = [name]() -> int {
      throw Error({.what = "this build has no runtime, so that it plans and runs nothing",
                   .where = "braid " + name,
                   .fix = "install the torch package, configure with -DBRAID_RUNTIME=ON and build "
                          "again"});
    };
  });
}

}  // namespace

std::vector<ComponentVersion> runtime_versions() { return {}; }

void add_train(const Verb& app, Run& run) {
  add_absent(app, run, "train", "run a plan (this build cannot)");
}

void add_auto(const Verb& app, Run& run) {
  add_absent(app, run, "auto", "measure, plan and train (this build cannot)");
}

void add_compare(const Verb& app, Run& run) {
  add_absent(app, run, "compare",
             "run several plans and hold them against their predictions (this build cannot)");
}

void add_checkpoint(const Verb& app, Run& run) {
  add_absent(app, run, "checkpoint", "look into checkpoints (this build cannot)");
}

void add_profile(const Verb& app, Run& run) {
  add_absent(app, run, "profile", "measure this machine (this build cannot)");
}

void add_bench(const Verb& app, Run& run) {
  add_absent(app, run, "bench", "hold this machine against what it could do (this build cannot)");
}

}  // namespace braid::cli
