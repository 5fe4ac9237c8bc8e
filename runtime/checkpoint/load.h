#pragma once
// The state of a run, read from a checkpoint under any plan of its model.

#include "planner/model/model.h"
#include "runtime/checkpoint/tensor_files.h"
#include "runtime/models/model.h"

namespace braid::checkpoint {

// Fills weights, masters and moments with this rank's elements and reads no others. Values are
// converted where the run has another precision. Worker::weights_changed() comes next. Throws an
// Error that names the tensor, and file and chunk where one is damaged.
void load_state(models::RankModel& rank_model, const Model& model, const TensorFiles& files);

}  // namespace braid::checkpoint
