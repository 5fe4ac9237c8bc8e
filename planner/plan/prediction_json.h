#pragma once
// The part of a plan file that says what its search expected.

#include "planner/core/json.h"
#include "planner/plan/plan.h"

namespace braid {

Json to_json(const Prediction& prediction);
Prediction prediction_from_json(const JsonValue& value);

Json to_json(const Certificate& certificate);
Certificate certificate_from_json(const JsonValue& value);

}  // namespace braid
