#pragma once

#include <string>
#include <vector>

namespace braid::cli {

inline constexpr const char* kVersion = "0.1.0";  // tests/cli holds it against CMakeLists.txt

struct ComponentVersion {
  std::string name, version;  // an empty version: not in this build
};
// Libraries that the runtime links.
std::vector<ComponentVersion> runtime_versions();

// Braid's version and commit, then a line for each component.
std::string version_text();

}  // namespace braid::cli
