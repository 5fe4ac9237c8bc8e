// A dry run plays a model on meta tensors: shapes and types without memory. What comes out must be
// what the CPU would give.

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <functional>

#include "runtime/ops/activation.h"
#include "runtime/ops/attention.h"
#include "runtime/ops/autograd.h"
#include "runtime/ops/cross_entropy.h"
#include "runtime/ops/embedding.h"
#include "runtime/ops/linear.h"
#include "runtime/ops/norm.h"
#include "runtime/ops/random.h"
#include "runtime/ops/rotary.h"
#include "runtime/ops/router.h"
#include "tests/support/tensors.h"

namespace braid::ops {
namespace {

// Makes inputs on one device in one precision.
struct Maker {
  at::Device device;
  at::ScalarType type;

  at::Tensor floats(at::IntArrayRef sizes) const {
    return random_tensor(sizes, 1, type).to(device);
  }
  at::Tensor gradient(at::IntArrayRef sizes) const {
    return random_tensor(sizes, 1, type == at::kBFloat16 ? at::kFloat : type).to(device);
  }
  at::Tensor counts(at::IntArrayRef sizes) const {
    std::int64_t total = 1;
    for (const std::int64_t size : sizes) total *= size;
    return at::arange(total, at::TensorOptions(at::kLong)).remainder(5).view(sizes).to(device);
  }
};

struct Case {
  const char* name;
  std::function<std::vector<at::Tensor>(const Maker&)> play;
};

const Case kCases[] = {
    {"linear",
     [](const Maker& m) {
       const at::Tensor x = m.floats({3, 2, 4});
       const at::Tensor weight = m.floats({6, 4});
       const at::Tensor y = linear(x, weight, m.floats({6}));
       const at::Tensor dweight = m.gradient({6, 4});
       const at::Tensor dbias = m.gradient({6});
       add_weight_gradient({dweight}, y, x);
       add_rows({dbias}, y);
       return std::vector{y, linear(x, weight), linear_input_gradient(y, weight), dweight, dbias};
     }},
    {"layer_norm",
     [](const Maker& m) {
       const at::Tensor x = m.floats({3, 2, 4});
       const at::Tensor weight = m.floats({4});
       const LayerNorm norm = layer_norm(x, weight, m.floats({4}), 1e-5);
       const NormGradients made = layer_norm_backward(norm.y, x, norm.statistics, weight);
       return std::vector{norm.y, norm.statistics, made.dx, made.rows};
     }},
    {"rms_norm",
     [](const Maker& m) {
       const at::Tensor x = m.floats({3, 2, 4});
       const at::Tensor weight = m.floats({4});
       const RmsNorm norm = rms_norm(x, weight, 1e-5);
       const NormGradients made = rms_norm_backward(norm.y, x, norm.statistics, weight);
       return std::vector{norm.y, norm.statistics, made.dx, made.rows};
     }},
    {"rotary",
     [](const Maker& m) {
       const RotaryTable table = rotary_table(m.counts({3}), m.gradient({4}), m.type);
       const at::Tensor x = m.floats({3, 2, 5, 8});
       return std::vector{table.cos, table.sin, rotary(x, table), rotary_backward(x, table)};
     }},
    {"activation",
     [](const Maker& m) {
       std::vector<at::Tensor> all;
       for (const Activation activation :
            {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::swiglu,
             Activation::geglu, Activation::geglu_tanh}) {
         const at::Tensor x = m.floats({3, 2, 8});
         all.push_back(activate(activation, x));
         all.push_back(activate_backward(activation, all.back(), x));
       }
       return all;
     }},
    {"embedding",
     [](const Maker& m) {
       const at::Tensor ids = m.counts({3, 2});
       const at::Tensor y = embedding(ids, m.floats({4, 6}), 2);
       const at::Tensor gradient = m.gradient({4, 6});
       add_embedding_gradient(gradient, y, ids, 2);
       return std::vector{y, gradient};
     }},
    {"cross_entropy",
     [](const Maker& m) {
       const at::Tensor logits = m.floats({3, 8});
       const at::Tensor labels = m.counts({3});
       const VocabularySlice slice{2, 6};
       const at::Tensor max = logits_max(logits, slice);
       const at::Tensor sums = exp_sums(logits, max, labels, slice);
       return std::vector{max,
                          sums,
                          row_losses(sums, labels),
                          logits_gradient_(logits, max, sums, labels, slice, 0.5),
                          logits_max(logits, {8, 0}),
                          exp_sums(logits, max, labels, {8, 0})};
     }},
    {"random",
     [](const Maker& m) {
       const at::Tensor where = m.counts({3, 2, 4});
       return std::vector{uniform_at(1, where), normal_at(1, where),
                          dropout(m.floats({3, 2, 4}), 0.1, 1, where)};
     }},
    {"attention",
     [](const Maker& m) {
       std::vector<at::Tensor> all;
       for (const Visibility& see :
            {Visibility{}, Visibility{.window = 2}, Visibility{.key_begin = 50}}) {
         const at::Tensor q = m.floats({5, 2, 4, 8});
         const at::Tensor k = m.floats({7, 2, 2, 8});
         const Attended one = attention(q, k, k, 0.3, see);
         const Attended two = merge(one, one);
         const AttentionGradients back =
             attention_backward(two.out, q, k, k, two.out, two.lse, 0.3, see);
         all.insert(all.end(), {one.out, one.lse, two.out, two.lse, back.dq, back.dk, back.dv});
       }
       return all;
     }},
    {"router",
     [](const Maker& m) {
       const Routed routed = route(m.floats({5, 4}), 2);
       return std::vector{routed.probabilities, routed.chosen, routed.weights,
                          routed_weights(routed.probabilities, routed.chosen),
                          route_backward(routed.weights, routed.probabilities, routed.chosen)};
     }},
    {"autograd",
     [](const Maker& m) {
       const at::Tensor x = m.floats({3, 4});
       Recorded call([](const std::vector<at::Tensor>& in) { return in[0].matmul(in[1]).sin(); },
                     {x, m.floats({4, 2})});
       const at::Tensor y = call.output();
       std::vector<at::Tensor> all = call.backward(y);
       all.push_back(y);
       return all;
     }},
};

TEST(Meta, ShapesAndTypesAreTheCpus) {
  for (const Case& c : kCases) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const std::vector<at::Tensor> real = c.play({at::Device(at::kCPU), type});
      const std::vector<at::Tensor> meta = c.play({at::Device(at::kMeta), type});
      ASSERT_EQ(real.size(), meta.size()) << c.name;
      for (std::size_t i = 0; i < real.size(); ++i) {
        EXPECT_TRUE(meta[i].is_meta()) << c.name << ", " << i;
        EXPECT_EQ(meta[i].sizes(), real[i].sizes()) << c.name << ", " << i;
        EXPECT_EQ(meta[i].strides(), real[i].strides()) << c.name << ", " << i;
        EXPECT_EQ(meta[i].scalar_type(), real[i].scalar_type())
            << c.name << ", " << i << " in " << toString(type);
      }
    }
  }
}

TEST(Meta, ATrillionParametersFit) {
  const at::TensorOptions options = at::TensorOptions(at::kBFloat16).device(at::kMeta);
  const at::Tensor x = at::empty({1 << 20, 64, 1 << 20}, options);
  EXPECT_EQ(linear(x, at::empty({1 << 20, 1 << 20}, options)).sizes(), x.sizes());
  const at::Tensor logits = at::empty({1 << 24, 1 << 20}, options);
  const at::Tensor labels = at::empty({1 << 24}, options.dtype(at::kLong));
  const at::Tensor max = logits_max(logits, {0, 1 << 20});
  EXPECT_EQ(exp_sums(logits, max, labels, {0, 1 << 20}).size(0), 1 << 24);
  EXPECT_EQ(dropout(x, 0.1, 1, at::empty(x.sizes(), options.dtype(at::kLong))).sizes(), x.sizes());
}

}  // namespace
}  // namespace braid::ops
