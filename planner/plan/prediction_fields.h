#pragma once
// The terms of a prediction as data: what a plan file says of a stage. Reader and writer walk the
// same tables, so that neither can forget a term.

#include <array>

#include "planner/cost/layer_cost.h"
#include "planner/cost/pipeline.h"

namespace braid {

template <class Owner, class Value>
struct PredictionField {
  const char* name;
  Value Owner::*member;
};
using StageTimeField = PredictionField<StageTimes, Seconds>;
using TimeTermField = PredictionField<LayerTime, double>;
using MemoryField = PredictionField<LayerMemory, Bytes>;

inline constexpr std::array kStageTimeFields = {
    StageTimeField{"forward", &StageTimes::forward},
    StageTimeField{"backward_input", &StageTimes::backward_input},
    StageTimeField{"backward_weight", &StageTimes::backward_weight},
    StageTimeField{"reduce", &StageTimes::reduce},
    StageTimeField{"update", &StageTimes::update},
    StageTimeField{"transfer", &StageTimes::transfer},
};

inline constexpr std::array kTimeTermFields = {
    TimeTermField{"forward_compute", &LayerTime::forward_compute},
    TimeTermField{"backward_input_compute", &LayerTime::backward_input_compute},
    TimeTermField{"backward_weight_compute", &LayerTime::backward_weight_compute},
    TimeTermField{"recompute", &LayerTime::recompute},
    TimeTermField{"forward_tensor", &LayerTime::forward_tensor},
    TimeTermField{"backward_tensor", &LayerTime::backward_tensor},
    TimeTermField{"forward_context", &LayerTime::forward_context},
    TimeTermField{"backward_context", &LayerTime::backward_context},
    TimeTermField{"forward_expert", &LayerTime::forward_expert},
    TimeTermField{"backward_expert", &LayerTime::backward_expert},
    TimeTermField{"forward_gather", &LayerTime::forward_gather},
    TimeTermField{"backward_gather", &LayerTime::backward_gather},
    TimeTermField{"reduce", &LayerTime::reduce},
    TimeTermField{"regather", &LayerTime::regather},
    TimeTermField{"update", &LayerTime::update},
    TimeTermField{"hidden_context", &LayerTime::hidden_context},
    TimeTermField{"hidden_gather", &LayerTime::hidden_gather},
    TimeTermField{"hidden_reduce", &LayerTime::hidden_reduce},
};

// Left out of a file where they are zero.
inline constexpr std::array kOptionalTermFields = {
    TimeTermField{"hidden_tensor", &LayerTime::hidden_tensor},
};

inline constexpr std::array kMemoryFields = {
    MemoryField{"weights", &LayerMemory::weights},
    MemoryField{"gradients", &LayerMemory::gradients},
    MemoryField{"optimizer", &LayerMemory::optimizer},
    MemoryField{"activations", &LayerMemory::activations},
    MemoryField{"deferred", &LayerMemory::deferred},
    MemoryField{"in_turn", &LayerMemory::in_turn},
    MemoryField{"workspace", &LayerMemory::workspace},
};

// Left out of a file where they are zero.
inline constexpr std::array kOptionalMemoryFields = {
    MemoryField{"constants", &LayerMemory::constants},
};

}  // namespace braid
