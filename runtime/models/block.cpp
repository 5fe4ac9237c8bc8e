#include "runtime/models/block.h"

#include "runtime/models/attention.h"
#include "runtime/models/cross_attention.h"
#include "runtime/models/feed_forward.h"
#include "runtime/models/mixture.h"
#include "runtime/ops/random.h"

namespace braid::models {

using parallel::Feed;
using parallel::Saved;

namespace {

// Each part has this many slots; x of the first part is slot 0.
constexpr int kSlots = 16;
constexpr int kInput = 0;

// The norm behind an encoder's last block, over what decoders look at.
class FinalNorm : public SubLayer {
 public:
  FinalNorm(const parallel::Site& site, parallel::Parameters::Declare& declare, int first_slot)
      : slot_(first_slot), norm_(site, declare, "final_norm") {}

  at::Tensor forward(const at::Tensor& x, const Feed&, parallel::Parameters& parameters,
                     Saved& saved) override {
    const Norm::Normed normed = norm_.forward(x, parameters);
    saved.keep(slot_, x);
    saved.keep(slot_ + 1, normed.statistics);
    return normed.y;
  }
  at::Tensor backward(const at::Tensor& dy, const Feed&, parallel::Parameters& parameters,
                      Saved& saved, parallel::WeightWork& work) override {
    return norm_.backward(dy, saved.at(slot_), saved.at(slot_ + 1), parameters, work);
  }
  void forget_cheap(Saved&) override {}

 private:
  int slot_;
  Norm norm_;
};

}  // namespace

Block::Block(std::string name, parallel::Site site, const ModelOptions& options)
    : Layer(std::move(name), std::move(site)) {
  const LayerShape& shape = this->site().shape;
  parallel::Parameters::Declare declare(this->site());
  const auto dropout = [&](const char* part) {
    return TokenDropout(this->site(), options.dropout,
                        ops::random_key(0, this->name() + "." + part));
  };
  const auto slot = [&] { return kSlots * static_cast<int>(parts_.size()); };
  auto attention = std::make_unique<Attention>(this->site(), declare, 0, dropout("attention"));
  bias_ = attention->relative_bias();
  parts_.push_back(std::move(attention));
  if (shape.cross_tokens > 0)
    parts_.push_back(
        std::make_unique<CrossAttention>(this->site(), declare, slot(), dropout("cross")));
  if (shape.experts > 0) {
    parts_.push_back(std::make_unique<Mixture>(this->site(), declare, slot(), dropout("ffn")));
  } else {
    parts_.push_back(std::make_unique<FeedForward>(this->site(), declare, slot(), dropout("ffn")));
  }
  if (shape.final_norm)
    parts_.push_back(std::make_unique<FinalNorm>(this->site(), declare, slot()));
  own(declare.make(this->name()));
}

at::Tensor Block::run(at::Tensor x, const Feed& feed, Saved& saved) {
  for (const auto& part : parts_) x = part->forward(x, feed, parameters(), saved);
  return x;
}

at::Tensor Block::forward(const at::Tensor& x, const Feed& feed, Saved& saved) {
  switch (site().strategy.recompute) {
    case Recompute::none:
      return run(x, feed, saved);
    case Recompute::selective: {
      at::Tensor y = x;
      for (const auto& part : parts_) {
        y = part->forward(y, feed, parameters(), saved);
        part->forget_cheap(saved);
      }
      return y;
    }
    case Recompute::full: {
      at::Tensor y = x;
      for (const auto& part : parts_) {
        Saved forgotten;
        y = part->forward(y, feed, parameters(), forgotten);
      }
      saved.keep(kInput, x);
      return y;
    }
  }
  internal_failure("unknown recomputation", std::source_location::current());
}

at::Tensor Block::backward(const at::Tensor& dy, const Feed& feed, Saved& saved,
                           parallel::WeightWork& work) {
  if (site().strategy.recompute == Recompute::full) {
    work.run_beside();  // what it holds makes room for what comes back
    run(at::Tensor(saved.at(kInput)), feed, saved);
  }
  at::Tensor gradient = dy;
  for (std::size_t i = parts_.size(); i-- > 0;) {
    gradient = parts_[i]->backward(gradient, feed, parameters(), saved, work);
    saved.drop(kSlots * static_cast<int>(i), kSlots);  // makes room for the parts ahead of it
  }
  return gradient;
}

}  // namespace braid::models
