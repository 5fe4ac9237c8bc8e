#pragma once
// What all ranks of a run must have in common. They compare contents, never names: a path may lead
// to other files on another node.

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/comm/group.h"
#include "runtime/models/model.h"
#include "runtime/train/data.h"

namespace braid::train {

// One thing that must be alike on all ranks.
struct Identity {
  const char* what;  // "plan"
  std::string text;  // equal where the thing is
  const char* fix;   // what to do where it is not
};

// Throws on every rank an Error that names the ranks that differ from most. Collective.
void expect_agreement(std::span<const Identity> identities, comm::Group& world, at::Device device);

// The same for the weights of ranks that hold the same elements of a layer: data-parallel replicas
// and, where ZeRO shards the states, the gathered weights. What ZeRO-3 shards has no replica.
// `when`: "the first weights". Collective; reads all weights once.
void expect_equal_replicas(models::RankModel& model, comm::Group& world, at::Device device,
                           const std::string& when);

// The data that `open` opens, on every rank. That may take one of them longer than operations of
// the world wait for a rank, as where lines are counted on a slow disk: ranks meet several times a
// second until all have theirs. Throws what `open` throws, on its rank. Collective.
std::shared_ptr<const Dataset> open_together(
    comm::Group& world, at::Device device,
    const std::function<std::shared_ptr<const Dataset>()>& open);

}  // namespace braid::train
