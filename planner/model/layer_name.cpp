#include "planner/model/layer_name.h"

#include <fmt/core.h>

#include "planner/core/error.h"

namespace braid {

std::string layer_name(const Model& model, int layer) {
  switch (model.type_of(layer).shape.kind) {
    case LayerKind::embedding:
      return "embedding";
    case LayerKind::head:
      return "head";
    case LayerKind::block:
    case LayerKind::merge:
      return fmt::format("blocks.{}", layer - 1);
  }
  internal_failure("unknown layer kind", std::source_location::current());
}

}  // namespace braid
