#pragma once
// What a layer is called: in parameters' names, in traces, in messages.

#include <string>

#include "planner/model/model.h"

namespace braid {

// "embedding", "blocks.3", "head"
std::string layer_name(const Model& model, int layer);

}  // namespace braid
