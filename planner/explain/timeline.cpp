#include "planner/explain/timeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/explain/sections.h"

namespace braid {
namespace {

constexpr double kCellsOfAnOperation = 5;  // enough for a letter and a micro-batch's number
constexpr int kMostRows = 32;

struct Window {
  double begin = 0, end = 0;
  bool dense = false;  // operations take about a cell: their letters alone
};

// How an operation looks: its letter, what fills the rest of its cells, and its color.
struct Look {
  char letter;
  std::string_view fill;
  Tone tone;
};

// None for transfers: they hold no stream, and waiting for them is idleness.
std::optional<Look> look_of(OpKind kind) {
  switch (kind) {
    case OpKind::forward:
      return Look{'F', "─", Tone::blue};
    case OpKind::backward:
    case OpKind::backward_input:
      return Look{'B', "═", Tone::green};
    case OpKind::backward_weight:
      return Look{'W', "┄", Tone::yellow};
    case OpKind::reduce:
      return Look{'R', "≈", Tone::magenta};
    case OpKind::update:
      return Look{'U', "~", Tone::cyan};
    case OpKind::send_activation:
    case OpKind::receive_activation:
    case OpKind::send_gradient:
    case OpKind::receive_gradient:
      return std::nullopt;
  }
  internal_failure("an operation without a look", std::source_location::current());
}

bool has_micro_batch(OpKind kind) { return kind != OpKind::reduce && kind != OpKind::update; }

// One operation in `width` cells: "F12─────", "B3", "W".
std::string block(const Op& op, const Look& look, std::size_t width) {
  std::string text(1, look.letter);
  if (has_micro_batch(op.kind)) {
    const std::string number = std::to_string(op.micro_batch);
    if (number.size() < width) text += number;
  }
  return text + repeat(look.fill, width - text.size());
}

class Row {
 public:
  Row(const Window& window, std::size_t width, const RenderOptions& options)
      : window_(window), width_(width), options_(options) {}

  void add(const SimulationEvent& event) {
    const auto look = look_of(event.op.kind);
    if (!look) return;
    const std::size_t begin = std::max(used_, cell_of(event.start));
    const std::size_t end = cell_of(event.end);
    if (end <= begin) return;
    idle_until(begin);
    const std::size_t width = end - begin;
    text_ += paint(window_.dense ? std::string(width, look->letter) : block(event.op, *look, width),
                   look->tone, options_);
    used_ = end;
  }

  std::string finish() {
    idle_until(width_);
    return std::move(text_);
  }

 private:
  std::size_t cell_of(Seconds time) const {
    const double span = window_.end - window_.begin;
    if (!(span > 0 && std::isfinite(span))) return 0;
    const double exact = (time.value() - window_.begin) / span;
    const auto width = static_cast<double>(width_);
    return static_cast<std::size_t>(std::clamp(std::round(exact * width), 0.0, width));
  }
  void idle_until(std::size_t cell) {
    text_ += paint(repeat("·", cell - used_), Tone::faint, options_);
    used_ = cell;
  }

  Window window_;
  std::size_t width_;
  RenderOptions options_;
  std::string text_;
  std::size_t used_ = 0;
};

// All of it, or its two ends where an operation would have too few cells to be told apart.
std::vector<Window> windows(const Simulation& simulation, const PipelineShape& shape,
                            std::size_t width) {
  const double whole = simulation.iteration.value();
  double busiest = 0;
  for (const StageUse& use : simulation.stages)
    busiest = std::max(busiest, (use.forward + use.backward_input + use.backward_weight).value());
  const double operations = 2.0 * shape.micro_batches * shape.chunks;
  const double legible = static_cast<double>(width) / kCellsOfAnOperation * busiest / operations;
  // A deep pipeline is shown until it is full, however small its operations get.
  double filled = 0;
  for (const SimulationEvent& event : simulation.events)
    if (event.op == Op{OpKind::forward, 0, 0}) filled = std::max(filled, event.end.value());
  const double shown = std::max(legible, 1.25 * filled);
  const bool dense = shown > 2 * legible;
  if (shown * 2 >= whole) return {{0, whole, dense}};
  return {{0, shown, dense}, {whole - shown, whole, dense}};
}

// The middle of many stages is left out.
bool elided(int stage, int stages) {
  return stages > kMostRows && stage >= kMostRows / 2 && stage < stages - kMostRows / 2;
}

std::string stage_name(int stage) { return fmt::format("stage {:<3} ", stage); }

std::string render_window(const Simulation& simulation, int stages, const Window& window,
                          std::size_t width, const RenderOptions& options) {
  std::vector<Row> rows(static_cast<std::size_t>(stages), Row(window, width, options));
  for (const SimulationEvent& event : simulation.events)
    rows[static_cast<std::size_t>(event.stage)].add(event);
  std::string text;
  for (int stage = 0; stage < stages; ++stage) {
    if (elided(stage, stages)) {
      if (stage == kMostRows / 2) text += "  …\n";
      continue;
    }
    text += "  " + stage_name(stage) + rows[static_cast<std::size_t>(stage)].finish() + '\n';
  }
  const std::string from = format_seconds(Seconds(window.begin));
  const std::string to = format_seconds(Seconds(window.end));
  const std::size_t indent = 2 + stage_name(0).size();
  return text +
         paint(std::string(indent, ' ') + from + pad_left(to, width - cells(from)), Tone::faint,
               options) +
         '\n';
}

}  // namespace

std::string render_timeline(const Simulation& simulation, const PipelineShape& shape,
                            const RenderOptions& options) {
  internal_check(!simulation.events.empty(), "a timeline of a simulation that kept its events");
  const std::size_t margin = 2 + stage_name(0).size();
  const auto width = std::max<std::size_t>(20, static_cast<std::size_t>(options.width) - margin);
  const std::vector<Window> parts = windows(simulation, shape, width);
  std::string text = heading(
      "Timeline", parts.size() == 1 ? "one iteration" : "the iteration's beginning, then its end",
      options);
  for (const Window& window : parts) {
    if (&window != &parts.front()) text += '\n';
    text += render_window(simulation, shape.stages, window, width, options);
  }
  const bool split = shape.schedule == ScheduleKind::zero_bubble && shape.stages > 1;
  std::vector<std::string> legend = {"F forward"};
  legend.emplace_back(split ? "B backward of the input" : "B backward");
  if (split) legend.emplace_back("W of the weights");
  for (const char* entry : {"R reduce", "U update", "· idle; numbers are micro-batches"})
    legend.emplace_back(entry);
  return text + flow(legend, options);
}

std::string render_use(const Simulation& simulation, const RenderOptions& options) {
  Table table({Align::right, Align::right, Align::right, Align::right, Align::right, Align::right,
               Align::right, Align::left});
  std::vector<std::string> titles = {"stage",  "forward", "backward", "reduce",
                                     "update", "bubble",  "busy",     ""};
  for (std::string& title : titles) title = paint(title, Tone::faint, options);
  table.add(titles);
  constexpr std::size_t kBarWidth = 24;
  constexpr int kWidthWithBars = 90;
  const bool bars = options.width >= kWidthWithBars;
  const int stages = static_cast<int>(simulation.stages.size());
  for (int i = 0; i < stages; ++i) {
    if (elided(i, stages)) {
      if (i == kMostRows / 2) table.add({"…"});
      continue;
    }
    const StageUse& use = simulation.stages[static_cast<std::size_t>(i)];
    const double busy = use.busy() / simulation.iteration;
    table.add({std::to_string(i), format_seconds(use.forward),
               format_seconds(use.backward_input + use.backward_weight), format_seconds(use.reduce),
               format_seconds(use.update), format_seconds(use.bubble), format_percent(busy),
               bars ? paint(fraction_bar(busy, kBarWidth), Tone::green, options) : ""});
  }
  return heading("Stages", fmt::format("of {}", format_seconds(simulation.iteration)), options) +
         table.text(options);
}

Json simulation_json(const Simulation& simulation) {
  Json stages = Json::array();
  for (const StageUse& use : simulation.stages)
    stages.push_back({{"forward_seconds", use.forward.value()},
                      {"backward_input_seconds", use.backward_input.value()},
                      {"backward_weight_seconds", use.backward_weight.value()},
                      {"reduce_seconds", use.reduce.value()},
                      {"update_seconds", use.update.value()},
                      {"bubble_seconds", use.bubble.value()},
                      {"busy_fraction", use.busy() / simulation.iteration}});
  return {{"status", "ok"},
          {"iteration_seconds", simulation.iteration.value()},
          {"stages", std::move(stages)}};
}

}  // namespace braid
