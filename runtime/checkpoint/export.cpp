#include "runtime/checkpoint/export.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "runtime/checkpoint/huggingface.h"

namespace braid::checkpoint {

namespace {

struct Stored {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
};

const char* torch_name(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "float64";
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    default:
      return "float16";
  }
}

void make_empty_folder(const std::filesystem::path& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!code && std::filesystem::is_empty(folder, code)) return;
  throw Error({.what = code ? fmt::format("cannot make the folder: {}", code.message())
                            : "the folder is not empty",
               .where = folder.string(),
               .fix = "name a new folder"});
}

// The model's tensors under their published names, ascending.
std::vector<Stored> tensors_of(const TensorFiles& files, const Model& model, at::ScalarType type) {
  std::set<std::string> names;
  for (const DeclaredParameter& declared : declared_parameters(model))
    names.insert(source_of(model, declared.layer, declared.spec.name).tensor);
  std::vector<Stored> tensors;
  for (const std::string& name : names) {
    const TensorFiles::Entry* entry = files.find(name);
    if (entry == nullptr)
      throw Error({.what = fmt::format("the checkpoint has no tensor '{}'", name),
                   .where = files.path().string(),
                   .fix = "use the config.json of the model that was trained"});
    tensors.push_back({name, entry->shape,
                       elements(entry->shape) * static_cast<std::int64_t>(c10::elementSize(type))});
  }
  return tensors;
}

// In the order of names; a file ends where the next tensor would make it too large.
std::vector<std::vector<Stored>> shards_of(const std::vector<Stored>& tensors, std::int64_t most) {
  std::vector<std::vector<Stored>> shards(1);
  std::int64_t bytes = 0;
  for (const Stored& tensor : tensors) {
    if (!shards.back().empty() && bytes + tensor.bytes > most) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(tensor);
    bytes += tensor.bytes;
  }
  return shards;
}

}  // namespace

Exported export_huggingface(const TensorFiles& files, const Model& model,
                            const ExportOptions& options) {
  make_empty_folder(options.out);
  Json config = parse_json(options.config, "config.json");
  const std::vector<std::string> all = files.names();
  internal_check(!all.empty(), "a checkpoint has tensors");
  const at::ScalarType type =
      options.dtype.value_or(float_type(files.find(all.front())->dtype).value_or(at::kFloat));
  const std::vector<Stored> tensors = tensors_of(files, model, type);
  const std::vector<std::vector<Stored>> shards = shards_of(tensors, options.max_shard);
  Exported exported;
  Json weight_map = Json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    std::vector<TensorSpec> specs;
    for (const Stored& tensor : shards[i]) {
      specs.push_back({tensor.name, dtype_name(type), tensor.shape});
      weight_map[tensor.name] = name;
      exported.parameters += elements(tensor.shape);
      exported.bytes += tensor.bytes;
    }
    SafetensorsWriter out(options.out / name, specs, {{"format", "pt"}});
    for (const Stored& tensor : shards[i]) {
      const at::Tensor values = files.read(tensor.name).to(type).contiguous();
      out.add({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
    }
    out.commit();
    exported.files.push_back(options.out / name);
  }
  files.expect_whole();
  if (shards.size() > 1) {
    const Json index = {
        {"metadata", {{"total_parameters", exported.parameters}, {"total_size", exported.bytes}}},
        {"weight_map", weight_map}};
    exported.files.push_back(options.out / "model.safetensors.index.json");
    write_text(exported.files.back(), index.dump(2) + "\n");
  }
  config.erase("torch_dtype");
  config["dtype"] = torch_name(type);
  exported.files.push_back(options.out / "config.json");
  write_text(exported.files.back(), config.dump(2) + "\n");
  return exported;
}

}  // namespace braid::checkpoint
