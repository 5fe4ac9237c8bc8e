#include "planner/cost/make_cost_model.h"

#include <fmt/core.h>

#include "planner/core/error.h"
#include "planner/cost/braid_model.h"
#include "planner/cost/galvatron_model.h"

namespace braid {

std::unique_ptr<CostModel> make_cost_model(const CostSettings& settings, const Model& model,
                                           const Cluster& cluster, const Profile* profile) {
  const auto need_profile = [&] {
    if (profile == nullptr)
      throw Error({.what = fmt::format("the cost '{}' needs a profile", name_of(settings.kind)),
                   .where = "--cost",
                   .fix = "pass --profile, or use --cost roofline"});
  };
  BraidModel::Settings own{settings.precision, settings.gradient_precision, {}};
  switch (settings.kind) {
    case CostKind::measured:
      need_profile();
      return std::make_unique<BraidModel>(model, cluster, profile, own);
    case CostKind::roofline:
      return std::make_unique<BraidModel>(model, cluster, nullptr, own);
    case CostKind::galvatron:
      need_profile();
      return std::make_unique<GalvatronModel>(*profile, model, cluster, settings.global_batch);
    case CostKind::analytic:
      own.analytic = true;
      return std::make_unique<BraidModel>(model, cluster, nullptr, own);
  }
  return nullptr;
}

}  // namespace braid
