#include "runtime/checkpoint/saver.h"

#include <fmt/core.h>

#include <chrono>
#include <exception>
#include <system_error>

#include "planner/core/file.h"
#include "planner/core/json.h"
#include "runtime/parallel/collectives.h"

namespace braid::checkpoint {

namespace {

Seconds since(std::chrono::steady_clock::time_point begin) {
  return Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

Mistake mistake_of(const std::exception& error, const std::filesystem::path& folder) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return known->mistake();
  return {.what = error.what(), .where = folder.string(), .fix = "look at memory and disk"};
}

std::string text_of(const std::vector<StoredFile>& files) {
  Json list = Json::array();
  for (const StoredFile& file : files) list.push_back({file.name, file.bytes, file.hashes});
  return list.dump();
}

void add_files(const std::string& text, std::vector<StoredFile>& files) {
  for (const Json& file : parse_json(text, "files of a rank"))
    files.push_back({file[0].get<std::string>(), file[1].get<std::int64_t>(),
                     file[2].get<std::vector<std::string>>()});
}

}  // namespace

Saver::Saver(Options options, models::RankModel& rank_model, const Model& model, comm::Group& world,
             c10::Device device)
    : options_(std::move(options)),
      world_(&world),
      device_(device),
      snapshot_(rank_model, device),
      shard_(model, world.rank(), snapshot_) {}

Saver::~Saver() {
  // A run that ends on an error leaves an unfinished folder, which the next start removes.
  if (writing_.valid()) writing_.wait();
}

void Saver::begin(Manifest manifest) {
  internal_check(!under_way(), "one save at a time");
  manifest_ = std::move(manifest);
  manifest_.dtype = shard_.dtype();
  folder_ = step_folder(options_.run, manifest_.step);
  const auto begin = Clock::now();
  snapshot_.start();
  writing_ = std::async(std::launch::async, [this, begin] { return write(begin); });
}

Saver::Written Saver::write(Clock::time_point begin) {
  Written written;
  try {
    snapshot_.wait();
    written.copy = since(begin);
    const auto copied = Clock::now();
    std::error_code code;
    std::filesystem::create_directories(folder_, code);  // a failure is the files'
    written.files = shard_.write(folder_);
    written.write = since(copied);
  } catch (const std::exception& error) {
    written.trouble = mistake_of(error, folder_);
  }
  return written;
}

std::optional<Saved> Saver::poll() {
  if (!under_way()) return std::nullopt;
  const bool done = writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  for (const std::int64_t each :
       parallel::gather_words(done ? 1 : 0, *world_, device_, "checkpoint written"))
    if (each == 0) return std::nullopt;
  return conclude();
}

Saved Saver::finish() {
  internal_check(under_way(), "a save is under way");
  // Ranks that are done first wait in the collective, whose time limit is not made for disks.
  while (true) {
    writing_.wait_for(std::chrono::seconds(1));
    if (auto saved = poll()) return *saved;
  }
}

std::optional<Mistake> Saver::agree(const std::optional<Mistake>& mine) {
  const std::string text = mine ? Json({mine->what, mine->where, mine->fix}).dump() : "";
  for (const std::string& each :
       parallel::gather_texts(text, *world_, device_, "checkpoint trouble")) {
    if (each.empty()) continue;
    const Json json = parse_json(each, "trouble of a rank");
    return Mistake{.what = json[0].get<std::string>(),
                   .where = json[1].get<std::string>(),
                   .fix = json[2].get<std::string>()};
  }
  return std::nullopt;
}

std::optional<Mistake> Saver::commit(Written& written) {
  const std::vector<std::string> texts =
      parallel::gather_texts(text_of(written.files), *world_, device_, "checkpoint files");
  manifest_.files.clear();
  for (const std::string& text : texts) add_files(text, manifest_.files);
  manifest_.ranks = world_->size();
  if (world_->rank() > 0) return std::nullopt;
  for (const StoredFile& file : manifest_.files) {
    std::error_code code;
    if (std::filesystem::exists(folder_ / file.name, code)) continue;
    return Mistake{.what = "a file that another rank wrote is not to be seen by rank 0",
                   .where = (folder_ / file.name).string(),
                   .fix = "save to a folder that all nodes share"};
  }
  try {
    write_text(folder_ / kManifestFile, manifest_text(manifest_));
  } catch (const Error& error) {
    return error.mistake();
  }
  return std::nullopt;
}

std::optional<Mistake> Saver::remove_expired() const {
  try {
    for (const std::int64_t step : expired(saved_steps(options_.run), options_.keep))
      remove_checkpoint(step_folder(options_.run, step));
  } catch (const Error& error) {
    return error.mistake();
  }
  return std::nullopt;
}

Saved Saver::conclude() {
  Written written = writing_.get();
  Saved saved;
  saved.step = manifest_.step;
  saved.copy = written.copy;
  saved.write = written.write;
  saved.trouble = agree(written.trouble);
  if (!saved.trouble) saved.trouble = agree(commit(written));
  saved.bytes = manifest_.bytes();
  if (saved.trouble) {
    shard_.remove(folder_);
    world_->barrier("checkpoint removed");
    std::error_code ignored;  // what cannot be removed is no checkpoint, and goes at the next start
    const bool ours = std::filesystem::is_directory(folder_, ignored);
    if (world_->rank() == 0 && ours) std::filesystem::remove_all(folder_, ignored);
    return saved;
  }
  if (world_->rank() == 0) saved.leftover = remove_expired();
  return saved;
}

}  // namespace braid::checkpoint
