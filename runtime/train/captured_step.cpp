#include "runtime/train/captured_step.h"

#include "runtime/ops/device.h"
#include "runtime/ops/fallback.h"
#include "runtime/ops/timed.h"
#include "runtime/parallel/recorder.h"

namespace braid::train {

namespace {

constexpr const char* kName = "step as one launch";
// Products choose their algorithms and libraries build their plans in the first ones.
constexpr int kPlainSteps = 2;

}  // namespace

CapturedStep::CapturedStep(c10::Device device, const std::string& why_not)
    : device_(device), captures_(device.is_cuda() && why_not.empty()) {
  if (device.is_cuda() && !why_not.empty()) ops::note_fallback(kName, why_not);
}

bool CapturedStep::is_watched() { return parallel::Recorder::at_work() || ops::Timings::at_work(); }

void CapturedStep::run(const std::function<void()>& play, const std::function<void()>& abandon) {
  if (!captures_ || is_watched() || plain_steps_ < kPlainSteps) {
    graph_.drop();  // its memory is as much as the step takes
    play();
    ++plain_steps_;
    return;
  }
  if (!graph_.ready()) {
    ops::release_cached(device_);  // a graph has memory of its own
    const std::string trouble = graph_.capture(device_, play);
    if (!trouble.empty()) {
      ops::note_fallback(kName, trouble);
      captures_ = false;
      abandon();
      play();
      return;
    }
  }
  graph_.replay();
  ++replayed_;
}

}  // namespace braid::train
