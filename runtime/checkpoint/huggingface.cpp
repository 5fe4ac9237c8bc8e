#include "runtime/checkpoint/huggingface.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "planner/profile/fingerprint.h"
#include "runtime/comm/dry.h"

namespace braid::checkpoint {

Checkpoint::Checkpoint(const std::filesystem::path& file_or_folder, std::string prefix)
    : files_(file_or_folder), prefix_(std::move(prefix)) {}

std::string Checkpoint::content() const {
  std::string contents;
  for (const auto& checked : files_.files()) {
    const MappedFile& file = checked->tensors().mapped();
    contents += fmt::format("{} {}\n", file.path().filename().string(), sampled_content(file));
  }
  return fingerprint(contents);
}

std::optional<std::string> Checkpoint::find_any(const std::string& tensor) const {
  for (const std::string& name : names_in_files(tensor))
    if (files_.find(prefix_ + name) != nullptr) return prefix_ + name;
  return std::nullopt;
}

std::string Checkpoint::find(const std::string& tensor) const {
  if (auto found = find_any(tensor)) return *found;
  const std::string near = nearest(prefix_ + tensor, files_.names());
  throw Error({.what = fmt::format("no tensor '{}{}'{}", prefix_, tensor,
                                   near.empty() ? "" : fmt::format("; the nearest is '{}'", near)),
               .where = files_.path().string(),
               .fix =
                   "use the checkpoint and the config.json of one model; a checkpoint in several "
                   "files is read from their folder"});
}

at::Tensor Checkpoint::parameter(const Model& model, int layer,
                                 const parallel::ParameterSpec& spec) const {
  const Source source = source_of(model, layer, spec.name);
  const std::string name = find(source.tensor);
  const TensorFiles::Entry& entry = *files_.find(name);
  const std::string where = fmt::format(
      "{}: tensor '{}'", entry.rectangles.front().file->tensors().path().string(), name);
  if (!float_type(entry.dtype))
    throw Error({.what = fmt::format("parameters of dtype {} cannot be trained", entry.dtype),
                 .where = where,
                 .fix = "load a checkpoint in F64, F32, BF16 or F16, not a quantised one"});
  const LayerShape& shape = model.type_of(layer).shape;
  const std::vector<std::int64_t> expected = stored_shape(source, shape, spec.shape);
  const bool fits =
      source.folded ? elements(entry.shape) == elements(expected) : entry.shape == expected;
  if (!fits)
    throw Error({.what = fmt::format("the shape is [{}], the model's is [{}]",
                                     fmt::join(entry.shape, ", "), fmt::join(expected, ", ")),
                 .where = where,
                 .fix = "use the checkpoint and the config.json of one model"});
  const at::Tensor whole = files_.read(name);
  if (source.folded) return whole.reshape(spec.shape);
  return part_of(whole, source, shape, spec.shape).reshape(spec.shape);
}

void Checkpoint::expect_accounted(const Model& model) const {
  std::set<std::string> used;
  for (const DeclaredParameter& declared : declared_parameters(model))
    used.insert(find(source_of(model, declared.layer, declared.spec.name).tensor));
  for (const std::string& name : files_.names()) {
    if (used.contains(name) || !name.starts_with(prefix_)) continue;
    const std::string tensor = name.substr(prefix_.size());
    if (const auto kept = tied_to(model, tensor)) {
      if (!files_.read(name).equal(files_.read(find(*kept))))
        throw Error(
            {.what = fmt::format("'{}' differs from '{}', to which the model ties it", name, *kept),
             .where = files_.path().string(),
             .fix = "set \"tie_word_embeddings\" to false in config.json, or remove the "
                    "tensor"});
    } else if (!is_dispensable(tensor)) {
      throw Error({.what = fmt::format("the model has no use for the tensor '{}'", name),
                   .where = files_.path().string(),
                   .fix = "use the config.json of this checkpoint, or remove the tensor"});
    }
  }
}

std::vector<DeclaredParameter> declared_parameters(const Model& model) {
  Plan plan;
  plan.model = model;
  plan.cluster.device_types.emplace_back();
  plan.cluster.groups = {{.count = 1, .device_type = 0, .devices = 1, .inside = {}}};
  plan.global_batch = 1;
  plan.stages = {
      {.chunks = {{0, model.num_layers()}},
       .strategies = std::vector<Strategy>(static_cast<std::size_t>(model.num_layers()))}};
  const auto world = comm::dry_group(0, 1);
  parallel::Groups groups(*world);
  const models::RankModel built =
      models::build(plan, 0, parallel::fp64_numerics(at::kMeta), groups, {});
  std::vector<DeclaredParameter> declared;
  for (std::size_t i = 0; i < built.layers.size(); ++i)
    for (const parallel::ParameterSpec& spec : built.layers[i]->parameters().specs())
      declared.push_back({built.indices[i], spec});
  return declared;
}

void load_huggingface(models::RankModel& rank_model, const Model& model,
                      const Checkpoint& checkpoint) {
  for (std::size_t i = 0; i < rank_model.layers.size(); ++i) {
    parallel::Parameters& parameters = rank_model.layers[i]->parameters();
    parameters.fill([&](parallel::Parameters::Id id) {
      const parallel::ParameterSpec& spec = parameters.specs()[static_cast<std::size_t>(id)];
      return parallel::local_slice(spec, parameters.local(id),
                                   checkpoint.parameter(model, rank_model.indices[i], spec));
    });
  }
  checkpoint.expect_whole();
}

}  // namespace braid::checkpoint
