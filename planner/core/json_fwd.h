#pragma once
// The name of JSON without its weight, for headers.

#include <nlohmann/json_fwd.hpp>

namespace braid {

using Json = nlohmann::ordered_json;

}  // namespace braid
