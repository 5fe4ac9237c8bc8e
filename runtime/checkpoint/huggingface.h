#pragma once
// Weights in the files of Hugging Face checkpoints: read, held against a model, and written.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/model/model.h"
#include "runtime/checkpoint/huggingface_names.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_files.h"
#include "runtime/models/model.h"

namespace braid::checkpoint {

// The weights of one model under their Hugging Face names: published files, or a checkpoint of a
// run.
class Checkpoint {
 public:
  // As TensorFiles. Names in the files carry `prefix`.
  explicit Checkpoint(const std::filesystem::path& file_or_folder, std::string prefix = "");

  // The unsharded parameter in the type it is stored in; where one aligned file holds it, a view
  // valid as long as the checkpoint. Throws Error, naming file and tensor, where it is absent or is
  // not of the model's shape.
  at::Tensor parameter(const Model& model, int layer, const parallel::ParameterSpec& spec) const;

  // Throws an Error unless every tensor is one of the model's, a copy of a tied one with its
  // values, or one that training is known to do without, such as a buffer or a pooler.
  void expect_accounted(const Model& model) const;

  // As of MappedFile, of all files. To follow the last use of a parameter.
  void expect_whole() const { files_.expect_whole(); }
  // Of the files' names and contents, not of their folder; see sampled_content() of a mapped file.
  std::string content() const;
  const TensorFiles& files() const { return files_; }

 private:
  std::string find(const std::string& tensor) const;
  std::optional<std::string> find_any(const std::string& tensor) const;

  TensorFiles files_;
  std::string prefix_;
};

// A parameter of a model as the runtime declares it.
struct DeclaredParameter {
  int layer = 0;
  parallel::ParameterSpec spec;
};
// All of them, in the order of layers.
std::vector<DeclaredParameter> declared_parameters(const Model& model);

// Fills this rank's slices of every parameter. Worker::weights_changed() comes next.
void load_huggingface(models::RankModel& rank_model, const Model& model,
                      const Checkpoint& checkpoint);

// A parameter as all ranks together hold it.
struct WholeParameter {
  int layer = 0;
  parallel::ParameterSpec spec;
  at::Tensor value;
};
// Writes them under the names and in the shapes of published checkpoints: what a Checkpoint reads.
// Parameters that lie in one tensor come together. Throws Error where the shape is not known.
void save_huggingface(const std::filesystem::path& file, const Model& model,
                      std::span<const WholeParameter> parameters);

}  // namespace braid::checkpoint
