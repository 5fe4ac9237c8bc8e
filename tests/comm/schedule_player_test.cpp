// Schedules played with threads and plain vectors: no tensors, so that the thread sanitizer sees
// everything that moves.

#include "runtime/parallel/schedule_player.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "runtime/comm/in_process.h"

namespace braid::parallel {
namespace {

using Values = std::vector<double>;
constexpr std::int64_t kWidth = 3;

// Small whole numbers: sums in any order are exact.
Values input_of(int micro_batch) {
  return {1.0 + micro_batch, 2.0 - micro_batch, 3.0 * micro_batch};
}
Values loss_gradient_of(int micro_batch) { return {1, 2.0 + micro_batch, -1}; }
double weight_of(int virtual_stage) { return virtual_stage % 2 == 0 ? 2 : -1; }

double dot(const Values& a, const Values& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
Values times(double factor, Values x) {
  for (double& value : x) value *= factor;
  return x;
}

// Weight gradients of a chain y = w · x of all virtual stages, one after the other.
std::vector<double> serial_gradients(const PipelineShape& shape) {
  const int parts = num_virtual_stages(shape);
  std::vector<double> gradients(static_cast<std::size_t>(parts), 0);
  for (int m = 0; m < shape.micro_batches; ++m) {
    std::vector<Values> inputs = {input_of(m)};
    for (int v = 0; v < parts; ++v) inputs.push_back(times(weight_of(v), inputs.back()));
    Values dy = loss_gradient_of(m);
    for (int v = parts - 1; v >= 0; --v) {
      gradients[static_cast<std::size_t>(v)] += dot(inputs[static_cast<std::size_t>(v)], dy);
      dy = times(weight_of(v), dy);
    }
  }
  return gradients;
}

class ChainStage : public StageWork {
 public:
  ChainStage(const PipelineShape& shape, comm::Group& world)
      : shape_(shape), stage_(world.rank()), world_(world) {
    std::vector<int> everyone(static_cast<std::size_t>(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    activation_channel_ = world.subgroup(everyone, "activations");
    gradient_channel_ = world.subgroup(everyone, "gradients");
    gradients_.resize(static_cast<std::size_t>(num_virtual_stages(shape)), 0);
  }

  void forward(int chunk, int m) override {
    const bool first = at(chunk) == 0;
    const Values x = first ? input_of(m) : take(activations_, {chunk, m});
    inputs_[{chunk, m}] = x;
    const bool last = at(chunk) == num_virtual_stages(shape_) - 1;
    if (!last) activations_[{lone() ? chunk + 1 : chunk, m}] = times(weight_of(at(chunk)), x);
  }
  void backward(int chunk, int m) override {
    backward_input(chunk, m);
    backward_weight(chunk, m);
  }
  void backward_input(int chunk, int m) override {
    const bool last = at(chunk) == num_virtual_stages(shape_) - 1;
    const Values dy = last ? loss_gradient_of(m) : take(input_gradients_, {chunk, m});
    output_gradients_[{chunk, m}] = dy;
    if (at(chunk) > 0)
      input_gradients_[{lone() ? chunk - 1 : chunk, m}] = times(weight_of(at(chunk)), dy);
  }
  void backward_weight(int chunk, int m) override {
    gradients_[static_cast<std::size_t>(at(chunk))] +=
        dot(take(inputs_, {chunk, m}), take(output_gradients_, {chunk, m}));
  }
  void send_activation(int chunk, int m) override {
    post(*activation_channel_, take(activations_, {chunk, m}), (stage_ + 1) % shape_.stages);
  }
  void receive_activation(int chunk, int m) override {
    activations_[{chunk, m}] = fetch(*activation_channel_, previous());
  }
  void send_gradient(int chunk, int m) override {
    post(*gradient_channel_, take(input_gradients_, {chunk, m}), previous());
  }
  void receive_gradient(int chunk, int m) override {
    input_gradients_[{chunk, m}] = fetch(*gradient_channel_, (stage_ + 1) % shape_.stages);
  }
  void reduce() override {
    EXPECT_TRUE(inputs_.empty() && output_gradients_.empty()) << "reduced before the last backward";
    ++reduced_;
  }
  void update() override {
    EXPECT_EQ(reduced_, 1);
    ++updated_;
    world_
        .all_reduce({gradients_.data(), std::ssize(gradients_), comm::DataType::fp64},
                    comm::Reduction::sum, "gradients of all stages")
        .wait();
  }

  void finish() {
    for (Sending& sending : sending_) sending.handle.wait();
    EXPECT_EQ(updated_, 1);
    EXPECT_TRUE(activations_.empty() && input_gradients_.empty()) << "something was left behind";
  }
  const std::vector<double>& gradients() const { return gradients_; }

 private:
  using Key = std::pair<int, int>;  // chunk, micro-batch
  struct Sending {
    std::unique_ptr<Values> values;
    comm::Handle handle;
  };

  int at(int chunk) const { return virtual_stage(shape_, stage_, chunk); }
  bool lone() const { return shape_.stages == 1; }
  int previous() const { return (stage_ + shape_.stages - 1) % shape_.stages; }

  static Values take(std::map<Key, Values>& from, const Key& key) {
    const auto found = from.find(key);
    if (found == from.end()) {
      ADD_FAILURE() << "chunk " << key.first << ", micro-batch " << key.second << " is not there";
      return Values(kWidth, 0);
    }
    Values values = std::move(found->second);
    from.erase(found);
    return values;
  }
  void post(comm::Group& channel, Values values, int to) {
    auto kept = std::make_unique<Values>(std::move(values));
    comm::Handle handle = channel.send({kept->data(), kWidth, comm::DataType::fp64}, to, "values");
    sending_.push_back({std::move(kept), std::move(handle)});
  }
  static Values fetch(comm::Group& channel, int from) {
    Values values(kWidth);
    channel.receive({values.data(), kWidth, comm::DataType::fp64}, from, "values").wait();
    return values;
  }

  PipelineShape shape_;
  int stage_;
  comm::Group& world_;
  std::unique_ptr<comm::Group> activation_channel_, gradient_channel_;
  std::map<Key, Values> activations_, input_gradients_;  // at a chunk's door
  std::map<Key, Values> inputs_, output_gradients_;      // kept for the weight's gradient
  std::vector<Sending> sending_;
  std::vector<double> gradients_;  // by virtual stage
  int reduced_ = 0, updated_ = 0;
};

TEST(SchedulePlayer, EveryScheduleComputesWhatOneStageComputes) {
  std::vector<PipelineShape> shapes;
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zero_bubble})
    for (const int stages : {1, 2, 3, 4})
      for (const int micro_batches : {1, 2, 5, 8}) shapes.push_back({kind, stages, micro_batches});
  for (const int stages : {1, 2, 4})
    for (const int chunks : {1, 2, 3})
      for (const int rounds : {1, 2})
        shapes.push_back({ScheduleKind::interleaved, stages, stages * rounds, chunks});

  for (const PipelineShape& shape : shapes) {
    SCOPED_TRACE(fmt::format("{}: {} stages, {} micro-batches, {} chunks", name_of(shape.schedule),
                             shape.stages, shape.micro_batches, shape.chunks));
    const Schedule schedule = proven_schedule(shape);
    const std::vector<double> expected = serial_gradients(shape);
    comm::run_in_process(shape.stages, [&](comm::Group& world) {
      ChainStage stage(shape, world);
      play(schedule[static_cast<std::size_t>(world.rank())], stage);
      stage.finish();
      EXPECT_EQ(stage.gradients(), expected);
    });
  }
}

TEST(SchedulePlayer, EveryOperationIsPlayedInItsOrder) {
  // Writes down what it is told.
  class Scribe : public StageWork {
   public:
    void forward(int c, int m) override { note(OpKind::forward, c, m); }
    void backward(int c, int m) override { note(OpKind::backward, c, m); }
    void backward_input(int c, int m) override { note(OpKind::backward_input, c, m); }
    void backward_weight(int c, int m) override { note(OpKind::backward_weight, c, m); }
    void send_activation(int c, int m) override { note(OpKind::send_activation, c, m); }
    void receive_activation(int c, int m) override { note(OpKind::receive_activation, c, m); }
    void send_gradient(int c, int m) override { note(OpKind::send_gradient, c, m); }
    void receive_gradient(int c, int m) override { note(OpKind::receive_gradient, c, m); }
    void reduce() override { note(OpKind::reduce, 0, 0); }
    void update() override { note(OpKind::update, 0, 0); }
    OpList noted;

   private:
    void note(OpKind kind, int chunk, int micro_batch) {
      noted.push_back({kind, chunk, micro_batch});
    }
  };
  for (const PipelineShape shape : {PipelineShape{ScheduleKind::zero_bubble, 3, 4},
                                    PipelineShape{ScheduleKind::interleaved, 2, 4, 2}})
    for (const OpList& list : proven_schedule(shape)) {
      Scribe scribe;
      play(list, scribe);
      EXPECT_EQ(scribe.noted, list);
    }
}

}  // namespace
}  // namespace braid::parallel
