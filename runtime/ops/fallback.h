#pragma once
// What could not be done the fast way, and why: told once, never silent.

#include <functional>
#include <string>

namespace braid::ops {

// "rms_norm on CUDA: a row of 40000 is too long". The same operation and reason are told once a
// process.
void note_fallback(const std::string& operation, const std::string& reason);

// Who is told; without one, a line goes to stderr. Returns the one before.
using FallbackListener = std::function<void(const std::string& line)>;
FallbackListener on_fallback(FallbackListener listener);

}  // namespace braid::ops
