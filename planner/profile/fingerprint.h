#pragma once
// What a file held when a plan was priced from it, in sixteen characters.

#include <string>
#include <string_view>

namespace braid {

// FNV-1a, 64 bits, as hexadecimal digits. It notices a changed file; it is no defence against one
// that was forged.
std::string fingerprint(std::string_view bytes);

}  // namespace braid
