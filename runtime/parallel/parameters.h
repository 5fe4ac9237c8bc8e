#pragma once
// The parameters of one layer on one rank: declared by name and whole shape, cut as the site says,
// stored flat.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/parallel/flat_buffer.h"
#include "runtime/parallel/site.h"

namespace braid::parallel {

enum class CutBy {
  nothing,     // every rank of a tensor group holds it whole
  hidden,      // as the hidden width between layers: whole, but in a square
  tensor,      // equal blocks
  kv_heads,    // blocks of key-value heads, held by several ranks where heads are fewer
  vocabulary,  // equal blocks of rows, the last ones padded
};
enum class Init { zeros, ones, normal };

struct ParameterSpec {
  std::string name;                 // within the layer: "attention.q.weight"
  std::vector<std::int64_t> shape;  // whole
  CutBy cut = CutBy::nothing;
  int cut_dim = 0;
  Init init = Init::normal;
  double deviation = 0.02;  // of a normal one
  bool decays = true;
  int expert = -1;             // the expert it belongs to
  std::int64_t zero_row = -1;  // of a normal one: a row that starts at zero
};

// What this rank holds of a parameter.
struct LocalShape {
  std::vector<std::int64_t> shape;  // with padding
  std::int64_t begin = 0;           // along the cut dim
  std::int64_t real = 0;            // along the cut dim, without padding
  std::int64_t across = 0;          // where a matrix in a square begins along the other dim
};
LocalShape local_shape(const ParameterSpec& spec, const Site& site);
// This rank's slice of a whole tensor, without padding.
at::Tensor local_slice(const ParameterSpec& spec, const LocalShape& local, const at::Tensor& whole);

class Parameters {
 public:
  using Id = int;

  // Declarations, then make().
  class Declare {
   public:
    explicit Declare(const Site& site) : site_(&site) {}
    Id add(ParameterSpec spec);
    std::unique_ptr<Parameters> make(const std::string& layer_name);

   private:
    const Site* site_;
    std::vector<ParameterSpec> specs_;
  };

  Parameters(const std::string& layer_name, std::vector<ParameterSpec> specs, const Site& site);

  // Views of the gathered weights, or of the gradients under begin_gradients(). `fused` parameters
  // that were declared one after the other are one matrix [sum of rows, columns]. A gradient that
  // nobody has added to is zero, or, as a sum, fresh.
  at::Tensor weight(Id id) const;
  at::Tensor fused_weight(Id first, int count) const;
  at::Tensor gradient(Id id) { return fused_gradient(id, 1); }
  at::Tensor fused_gradient(Id first, int count);
  ops::Sum gradient_sum(Id id) { return fused_gradient_sum(id, 1); }
  ops::Sum fused_gradient_sum(Id first, int count);

  void start_weights();
  void wait_weights();
  void release_weights();
  void begin_gradients();
  void end_gradients();
  void settle_gradients();

  // Sets every parameter to what `values` gives for it: this rank's slice, without padding.
  void fill(const std::function<at::Tensor(Id)>& values);
  // From seed and name alone: every layout starts from the same values.
  void initialise(std::uint64_t seed);
  // This rank's slices by id, without padding, in the states' precision. Collective over replicas.
  std::vector<at::Tensor> local_values() const;

  std::vector<FlatBuffer*> buffers();
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  const LocalShape& local(Id id) const { return slots_[static_cast<std::size_t>(id)].local; }
  // Where the local slice lies: elements [begin, end) of a flat buffer, row-major in local().shape.
  struct Place {
    const FlatBuffer* buffer = nullptr;
    std::int64_t begin = 0, end = 0;
  };
  Place place(Id id) const;
  std::string full_name(Id id) const;
  FlatBuffer::Usage bytes() const;

 private:
  // Every parameter's slice, in the states' precision, to be written.
  void write(const std::function<void(Id, const at::Tensor&)>& values);

  struct Slot {
    LocalShape local;
    FlatBuffer* buffer = nullptr;
    std::int64_t begin = 0, elements = 0;
  };
  struct Neighbours {
    FlatBuffer* buffer = nullptr;
    std::int64_t begin = 0, end = 0;
    std::vector<std::int64_t> shape;
  };
  Neighbours neighbours(Id first, int count) const;

  std::string layer_name_;
  std::vector<ParameterSpec> specs_;
  std::vector<Slot> slots_;
  std::unique_ptr<FlatBuffer> dense_, experts_;
  Numerics numerics_;
};

}  // namespace braid::parallel
