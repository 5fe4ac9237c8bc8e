#pragma once
// Former names of flags. They work until version 0.2.0, with a warning, and are not in --help.

#include <string>
#include <vector>

namespace braid::cli {

// The words after `braid` with every former name replaced by the present one.
std::vector<std::string> with_present_names(std::vector<std::string> words);

}  // namespace braid::cli
