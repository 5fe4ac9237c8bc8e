#pragma once
// Mistakes in a file as a table: each row breaks a sound one with a JSON Patch and names what the
// reader must say.

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "planner/core/error.h"
#include "planner/core/json.h"

namespace braid {

struct MistakeCase {
  const char* fact;
  const char* patch;  // JSON Patch on the sound file
  const char* what;   // part of it
  const char* where;
};

template <class Read>
void expect_refused(std::span<const MistakeCase> cases, const Json& sound, Read read) {
  for (const MistakeCase& c : cases) {
    const Json broken = sound.patch(parse_json(c.patch, c.fact));
    try {
      read(broken);
      ADD_FAILURE() << c.fact << " went unnoticed";
    } catch (const Error& error) {
      const Mistake& found = error.mistake();
      EXPECT_NE(found.what.find(c.what), std::string::npos) << c.fact << ": " << found.what;
      EXPECT_EQ(found.where, c.where) << c.fact;
      EXPECT_FALSE(found.fix.empty()) << c.fact;
    }
  }
}

}  // namespace braid
