// Stands in for the verbs that need libtorch where the runtime is not built.

#include "cli/verbs.h"
#include "planner/core/error.h"

namespace braid::cli {

void add_train(CLI::App& app, Run& run) {
  CLI::App* verb = app.add_subcommand("train", "run a plan (this build cannot)");
  verb->allow_extras();
  verb->footer("\nExample:\n  braid train --plan plan.json");
  verb->callback([&run] {
    run = []() -> int {
      throw Error({.what = "this build has no runtime, so that it plans and does not train",
                   .where = "braid train",
                   .fix = "install the torch package, configure with -DBRAID_RUNTIME=ON and build "
                          "again"});
    };
  });
}

}  // namespace braid::cli
