#pragma once
// Between Braid's parameter names and those of published Hugging Face checkpoints.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "planner/model/model.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/models/model.h"

namespace braid::checkpoint {

// Where a parameter lies in a checkpoint.
struct Source {
  std::string tensor;
  bool transposed = false;  // stored as [in, out]
  int part = 0, parts = 1;  // of the tensor's output rows, after transposing
  bool by_head = false;     // the parts alternate from head to head
  bool folded = false;      // the same values in another shape
  bool operator==(const Source&) const = default;
};

// Of parameter `name` of a layer ("attention.q.weight" of layer 1). Throws Error for a family
// whose names are not known here.
Source source_of(const Model& model, int layer, const std::string& name);

// Of the tensor that holds a parameter of this shape, among others or alone.
std::vector<std::int64_t> stored_shape(const Source& source, const LayerShape& layer,
                                       std::vector<std::int64_t> shape);
// The view of such a tensor that is the parameter: its elements in their order, but by head of one
// dim more.
at::Tensor part_of(const at::Tensor& stored, const Source& source, const LayerShape& layer,
                   const std::vector<std::int64_t>& shape);

// The safetensors files of one model, as one set of tensors.
class Checkpoint {
 public:
  // A file, or a folder of *.safetensors. Names in the files carry `prefix`.
  explicit Checkpoint(const std::filesystem::path& file_or_folder, std::string prefix = "");

  // The whole parameter in the type it is stored in, a view of the mapped file where its alignment
  // allows: valid as long as the checkpoint. Throws Error, naming file and tensor, where it is
  // absent or is not of the model's shape.
  at::Tensor parameter(const Model& model, int layer, const parallel::ParameterSpec& spec) const;

  // As of MappedFile, of all files. To follow the last use of a parameter.
  void expect_whole() const;
  // Of the files' names and contents, not of their folder; see sampled_content() of a mapped file.
  std::string content() const;

 private:
  struct Found {
    std::string name;
    const SafetensorsFile* file = nullptr;
  };
  Found find(const std::string& tensor) const;

  std::filesystem::path path_;
  std::string prefix_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> holder_;  // by name in the file
};

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
