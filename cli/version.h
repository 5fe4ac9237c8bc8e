#pragma once

namespace braid::cli {

inline constexpr const char* kVersion = "0.1.0";  // tests/cli holds it against CMakeLists.txt

}  // namespace braid::cli
