// braid version

#include "cli/version.h"

#include <commit.h>  // generated: the commit that is built
#include <fmt/core.h>

#include <memory>

#include "cli/common.h"
#include "cli/verb.h"
#include "cli/verbs.h"

namespace braid::cli {
namespace {

Json version_json() {
  Json json = {{"braid", kVersion}, {"commit", kCommit}};
  for (const ComponentVersion& component : runtime_versions())
    json[component.name] = component.version.empty() ? Json() : Json(component.version);
  return json;
}

}  // namespace

std::string version_text() {
  std::string text = fmt::format("braid {}, commit {}", kVersion, kCommit);
  for (const ComponentVersion& component : runtime_versions())
    text += fmt::format("\n{}: {}", component.name,
                        component.version.empty() ? "not in this build" : component.version);
  return text;
}

void add_version(const Verb& app, Run& run) {
  const auto format = std::make_shared<std::string>("text");
  const Verb verb = app.add("version", "show the version of Braid and of its libraries");
  const Options option(verb);
  option("--format", *format, "NAME", "text (default) or json");
  verb.examples({"braid version"});
  verb.when_chosen([format, &run] {
    run = [format] {
      if (read_format(*format) == Format::json) {
        print(version_json());
      } else {
        print(version_text() + "\n");
      }
      return kOk;
    };
  });
}

}  // namespace braid::cli
