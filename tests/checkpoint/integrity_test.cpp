// Damage is found wherever it is, and named; what a hostile checkpoint says leads nowhere else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "planner/core/json.h"
#include "runtime/checkpoint/chunk_hash.h"
#include "runtime/checkpoint/load.h"
#include "tests/checkpoint/saved_plan.h"
#include "tests/support/files.h"
#include "tests/support/random_plan.h"

namespace braid::checkpoint {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// Reads every byte as `braid checkpoint verify` does.
void verify(const std::filesystem::path& folder) {
  const TensorFiles files(folder);
  for (const auto& file : files.files()) file->expect_all_sound();
}

class Integrity : public testing::Test {
 protected:
  void SetUp() override {
    Plan plan = reference_plan(tiny_model("llama", 2, 16), 4);
    plan.cluster = tiny_cluster(2);
    for (Strategy& strategy : plan.stages.front().strategies)
      strategy = {.dp = 2, .zero = Zero::parameters};
    train_and_save(plan, parallel::numerics_of(Precision::fp32, Precision::fp32, at::kCPU),
                   folder_.path());
    checkpoint_ = step_folder(folder_.path(), kStep);
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint_))
      files_.push_back(entry.path());
    std::ranges::sort(files_);
  }

  std::filesystem::path shard() const { return files_.back(); }

  ScratchFolder folder_;
  std::filesystem::path checkpoint_;
  std::vector<std::filesystem::path> files_;
};

TEST_F(Integrity, AFlippedBitIsFoundAnywhere) {
  ASSERT_NO_THROW(verify(checkpoint_));
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::filesystem::path& file = files_[random() % files_.size()];
    const std::string before = read_bytes(file);
    std::string after = before;
    const std::size_t byte = random() % after.size();
    after[byte] = static_cast<char>(after[byte] ^ (1 << random() % 8));
    write_bytes(file, after);
    try {
      verify(checkpoint_);
      ADD_FAILURE() << "byte " << byte << " of " << file;
    } catch (const Error& error) {
      EXPECT_THAT(error.mistake().where, HasSubstr(file.filename().string()));
    }
    write_bytes(file, before);
  }
}

TEST_F(Integrity, DamageIsNamedByTensorFileAndChunk) {
  std::string bytes = read_bytes(shard());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(shard(), bytes);
  const Mistake found = mistake_of("a damaged shard", [&] { verify(checkpoint_); });
  EXPECT_THAT(found.what, HasSubstr("chunk 0 of the file"));
  EXPECT_THAT(found.what, HasSubstr("tensor '"));
  EXPECT_THAT(found.where, HasSubstr(shard().filename().string()));
  // Loading finds it too.
  const Plan plan = reference_plan(tiny_model("llama", 2, 16), 4);
  comm::run_in_process(1, [&](comm::Group& world) {
    train::Worker worker(
        plan, world, options_of(parallel::numerics_of(Precision::fp32, Precision::fp32, at::kCPU)),
        train::synthetic_samples(plan.model));
    EXPECT_THROW(load_state(worker.model(), plan.model, TensorFiles(checkpoint_)), Error);
  });
}

TEST_F(Integrity, FilesThatAreCutMissingOrSwappedAreNamed) {
  const std::string whole = read_bytes(shard());
  write_bytes(shard(), whole.substr(0, whole.size() - 1));
  EXPECT_THAT(mistake_of("cut", [&] { verify(checkpoint_); }).what,
              HasSubstr("the checkpoint's has"));
  std::filesystem::remove(shard());
  EXPECT_THAT(mistake_of("missing", [&] { verify(checkpoint_); }).what, HasSubstr("is missing"));
  write_bytes(shard(), whole);
  const std::filesystem::path other = files_[files_.size() - 2];
  const std::string others = read_bytes(other);
  write_bytes(shard(), others);
  write_bytes(other, whole);
  EXPECT_THAT(mistake_of("swapped", [&] { verify(checkpoint_); }).what,
              AnyOf(HasSubstr("the checkpoint's has"), HasSubstr("is damaged")));
}

TEST_F(Integrity, AManifestNamesFilesOfItsFolderAlone) {
  const std::string text = read_bytes(checkpoint_ / kManifestFile);
  const auto with_name = [&](const std::string& name) {
    std::string edited = text;
    const std::string old = shard().filename().string();
    edited.replace(edited.find(old), old.size(), name);
    // With a hash that holds, so that the name itself is looked at.
    const std::size_t place = edited.rfind("\": \"") + 4;
    edited.replace(place, 32, std::string(32, '0'));
    edited.replace(place, 32, hash_of(std::as_bytes(std::span(edited.data(), edited.size()))));
    write_bytes(checkpoint_ / kManifestFile, edited);
    return mistake_of(name, [&] { verify(checkpoint_); }).what;
  };
  EXPECT_THAT(with_name("../secret.safetensors"), HasSubstr("is no file of this folder"));
  EXPECT_THAT(with_name("/etc/passwd"), HasSubstr("is no file of this folder"));
  EXPECT_THAT(with_name("absent.safetensors"), HasSubstr("is missing"));
}

TEST(ChunkHash, IsThatOfTheReferenceImplementation) {
  // xxhsum -H2 of an empty file and of "braid".
  EXPECT_EQ(hash_of({}), "99aa06d3014798d86001c324468d497f");
  ChunkHasher hasher;
  const std::string bytes(static_cast<std::size_t>(kChunkBytes) + 3, 'b');
  for (std::size_t i = 0; i < bytes.size(); i += 1'000'003)
    hasher.add(std::as_bytes(
        std::span(bytes).subspan(i, std::min<std::size_t>(1'000'003, bytes.size() - i))));
  const std::vector<std::string> hashes = hasher.finish();
  ASSERT_EQ(hashes.size(), 2U);
  EXPECT_EQ(hashes[0],
            hash_of(std::as_bytes(std::span(bytes).first(static_cast<std::size_t>(kChunkBytes)))));
  EXPECT_EQ(hashes[1], hash_of(std::as_bytes(std::span(bytes).last(3))));
}

TEST(RunFolder, KeepsTheNewestAndEveryNth) {
  const std::vector<std::int64_t> steps = {100, 200, 300, 400, 500};
  EXPECT_EQ(expired(steps, {}), std::vector<std::int64_t>{});
  EXPECT_EQ(expired(steps, {.last = 2}), (std::vector<std::int64_t>{100, 200, 300}));
  EXPECT_EQ(expired(steps, {.last = 1, .every = 200}), (std::vector<std::int64_t>{100, 300}));
  EXPECT_EQ(expired(steps, {.last = 9}), std::vector<std::int64_t>{});
}

TEST(RunFolder, WhatWasNotFinishedIsNeverChosenAndGoes) {
  const ScratchFolder folder;
  for (const std::int64_t step : {4, 8, 12}) {
    std::filesystem::create_directory(step_folder(folder.path(), step));
    write_bytes(step_folder(folder.path(), step) / "shard", "x");
    if (step < 12) write_bytes(step_folder(folder.path(), step) / kManifestFile, "{}");
  }
  std::filesystem::create_directory(folder / "step-notes");
  write_bytes(folder / "notes", "mine");
  EXPECT_EQ(saved_steps(folder.path()), (std::vector<std::int64_t>{4, 8}));
  remove_unfinished(folder.path());
  EXPECT_FALSE(std::filesystem::exists(step_folder(folder.path(), 12)));
  EXPECT_TRUE(std::filesystem::exists(step_folder(folder.path(), 8) / "shard"));
  EXPECT_TRUE(std::filesystem::exists(folder / "step-notes"));
  EXPECT_TRUE(std::filesystem::exists(folder / "notes"));
}

}  // namespace
}  // namespace braid::checkpoint
