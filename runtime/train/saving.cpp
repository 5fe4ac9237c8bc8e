#include "runtime/train/saving.h"

#include <fmt/core.h>

#include <algorithm>

#include "planner/core/json.h"
#include "planner/core/text.h"
#include "runtime/checkpoint/run_folder.h"
#include "runtime/parallel/collectives.h"

namespace braid::train {

namespace {

using checkpoint::Manifest;
using checkpoint::Saved;
using checkpoint::Setting;

// Adds the time of its scope.
class Stopwatch {
 public:
  explicit Stopwatch(Seconds& total) : total_(&total) {}
  ~Stopwatch() {
    *total_ +=
        Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Seconds* total_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::string value_of(const std::vector<Setting>& settings, const std::string& name) {
  const auto found = std::ranges::find(settings, name, &Setting::name);
  return found == settings.end() ? "absent" : found->value;
}

std::vector<std::string> differences(const std::vector<Setting>& saved,
                                     const std::vector<Setting>& now) {
  std::vector<std::string> lines;
  for (const Setting& setting : now)
    if (const std::string before = value_of(saved, setting.name); before != setting.value)
      lines.push_back(
          fmt::format("{}: {} when it was saved, {} now", setting.name, before, setting.value));
  return lines;
}

// The model without its name, which follows from the file that it was read from.
Json nameless(const Model& model) {
  Json json = to_json(model);
  json.erase("name");
  return json;
}

// The first key whose values differ, as "types[1].shape.hidden: 64 when it was saved, 128 now".
std::string first_difference(const Json& saved, const Json& now, const std::string& path) {
  if (saved.is_object() && now.is_object()) {
    for (const auto& [key, value] : now.items()) {
      const std::string below = path.empty() ? key : fmt::format("{}.{}", path, key);
      if (!saved.contains(key)) return below + ": absent when it was saved";
      if (saved.at(key) != value) return first_difference(saved.at(key), value, below);
    }
    return path + ": has lost a key since it was saved";
  }
  if (saved.is_array() && now.is_array() && saved.size() == now.size())
    for (std::size_t i = 0; i < now.size(); ++i)
      if (saved[i] != now[i])
        return first_difference(saved[i], now[i], fmt::format("{}[{}]", path, i));
  return fmt::format("{}: {} when it was saved, {} now", path, saved.dump(), now.dump());
}

}  // namespace

void expect_savable(const SaveOptions& options) {
  checkpoint::make_run_folder(options.folder);
  const std::vector<std::int64_t> steps = checkpoint::saved_steps(options.folder);
  if (options.resume || steps.empty()) return;
  throw Error({.what = fmt::format("the folder holds checkpoints of an earlier run, up to step {}",
                                   steps.back()),
               .where = options.folder.string(),
               .fix = "add --resume to go on from there, or choose another folder"});
}

std::optional<std::filesystem::path> newest_checkpoint(const SaveOptions& options,
                                                       comm::Group& world, c10::Device device) {
  std::int64_t newest = -1;
  if (world.rank() == 0) {
    checkpoint::remove_unfinished(options.folder);
    const std::vector<std::int64_t> steps = checkpoint::saved_steps(options.folder);
    if (options.resume && !steps.empty()) newest = steps.back();
  }
  newest = parallel::gather_words(newest, world, device, "newest checkpoint").front();
  if (newest < 0) return std::nullopt;
  return checkpoint::step_folder(options.folder, newest);
}

std::vector<std::string> expect_same_run(const Manifest& manifest, const Model& model,
                                         const RunFacts& facts, const std::string& where) {
  std::vector<std::string> differs = differences(manifest.identity, facts.identity);
  const Json saved = nameless(manifest.model), now = nameless(model);
  if (saved != now) differs.insert(differs.begin(), "model." + first_difference(saved, now, ""));
  if (!differs.empty())
    throw Error({.what = fmt::format("the checkpoint is of another run: {}", join(differs, "; ")),
                 .where = where,
                 .fix = "give the flags and files of that run, or save to another folder; its "
                        "weights alone are taken with --weights"});
  return differences(manifest.settings, facts.settings);
}

Saving::Saving(const SaveOptions& options, const Plan& plan, RunFacts facts, RunPosition begin,
               models::RankModel& rank_model, comm::Group& world, c10::Device device, Tell tell)
    : options_(options),
      plan_(&plan),
      facts_(std::move(facts)),
      world_(&world),
      tell_(std::move(tell)),
      saver_({.run = options.folder, .keep = options.keep}, rank_model, plan.model, world, device),
      last_begun_(begin.step),
      last_time_(std::chrono::steady_clock::now()) {}

void Saving::hold_back_changes() {
  if (!saver_.under_way()) return saver_.hold_back_changes();  // for a graph that is captured now
  const Stopwatch watch(stall_);
  saver_.hold_back_changes();
}

bool Saving::is_time() const {
  return options_.every > Seconds(0) && world_->rank() == 0 &&
         std::chrono::steady_clock::now() - last_time_ >=
             std::chrono::duration<double>(options_.every.value());
}

void Saving::begin(RunPosition position) {
  Manifest manifest;
  manifest.program = facts_.program;
  manifest.step = position.step;
  manifest.samples = position.samples;
  manifest.tokens = position.samples * plan_->model.sequence;
  manifest.model = plan_->model;
  manifest.plan = plan_text(*plan_);
  manifest.identity = facts_.identity;
  manifest.settings = facts_.settings;
  saver_.begin(std::move(manifest));
  last_begun_ = position.step;
  last_time_ = std::chrono::steady_clock::now();
}

void Saving::add(Saved saved, std::vector<Saved>& ended) {
  if (tell_ && world_->rank() == 0) tell_(saved);
  if (saved.trouble && options_.stop_on_error) throw Error(*saved.trouble);
  ended.push_back(std::move(saved));
}

std::vector<Saved> Saving::after_step(RunPosition position, bool asked, bool last) {
  const Stopwatch watch(stall_);
  std::vector<Saved> ended;
  if (auto saved = saver_.poll()) add(*std::move(saved), ended);
  if (last) {
    if (saver_.under_way()) add(saver_.finish(), ended);
    if (last_begun_ == position.step && (ended.empty() || !ended.back().trouble)) return ended;
    begin(position);
    add(saver_.finish(), ended);
    return ended;
  }
  const bool due = asked || (options_.every_steps > 0 && position.step % options_.every_steps == 0);
  if (!due) return ended;
  if (!saver_.under_way()) {
    begin(position);
  } else if (tell_ && world_->rank() == 0) {
    Saved late;
    late.step = position.step;
    late.trouble =
        Mistake{.what = fmt::format("step {} is not saved: the save of step {} is still under way",
                                    position.step, saver_.step()),
                .where = options_.folder.string(),
                .fix = "save less often, or to a faster disk"};
    tell_(late);
  }
  return ended;
}

}  // namespace braid::train
