// braid checkpoint: what is in one, whether it is whole, what two differ in, and the way out.

#include <ATen/core/grad_mode.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/common.h"
#include "cli/verb.h"
#include "cli/verbs.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/text.h"
#include "planner/explain/summary.h"
#include "runtime/checkpoint/export.h"
#include "runtime/checkpoint/huggingface.h"
#include "runtime/checkpoint/run_folder.h"
#include "runtime/checkpoint/tensor_files.h"

namespace braid::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::Manifest;
using checkpoint::TensorFiles;

// A checkpoint, or the newest one of a run's folder.
fs::path find_checkpoint(const std::string& given) {
  fs::path folder = given;
  std::error_code code;
  if (fs::exists(folder / checkpoint::kManifestFile, code)) return folder;
  const std::vector<std::int64_t> steps = checkpoint::saved_steps(folder);
  if (!steps.empty()) return checkpoint::step_folder(folder, steps.back());
  throw Error({.what = fs::is_directory(folder, code) ? "there is no checkpoint in the folder"
                                                      : "there is no such folder",
               .where = folder.string(),
               .fix = "name the folder of --save, or one of its step-... folders"});
}

std::int64_t saved_parameters(const TensorFiles& files) {
  std::int64_t sum = 0;
  for (const std::string& name : files.names())
    if (!checkpoint::is_dispensable(name)) sum += checkpoint::elements(files.find(name)->shape);
  return sum;
}

// The elements of a tensor that no file has.
std::int64_t missing_elements(const TensorFiles::Entry& entry) {
  std::int64_t held = 0;
  for (const TensorFiles::Rectangle& rectangle : entry.rectangles)
    held += checkpoint::elements(rectangle.box);
  return checkpoint::elements(entry.shape) - held;
}

struct ShowFlags {
  std::string folder, format = "text";
  bool tensors = false;
};

Json show_json(const TensorFiles& files, bool tensors) {
  const Manifest& manifest = *files.manifest();
  const auto settings = [](const std::vector<checkpoint::Setting>& list) {
    Json object = Json::object();
    for (const checkpoint::Setting& setting : list) object[setting.name] = setting.value;
    return object;
  };
  Json json = {{"folder", files.path().string()},
               {"program", manifest.program},
               {"step", manifest.step},
               {"samples", manifest.samples},
               {"tokens", manifest.tokens},
               {"model", manifest.model.name},
               {"parameters", saved_parameters(files)},
               {"dtype", manifest.dtype},
               {"ranks", manifest.ranks},
               {"files", manifest.files.size()},
               {"bytes", manifest.bytes()},
               {"identity", settings(manifest.identity)},
               {"settings", settings(manifest.settings)}};
  if (!tensors) return json;
  for (const std::string& name : files.names()) {
    const TensorFiles::Entry& entry = *files.find(name);
    json["tensors"][name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"rectangles", entry.rectangles.size()}};
  }
  return json;
}

std::string show_text(const TensorFiles& files, bool tensors) {
  const Manifest& manifest = *files.manifest();
  const RenderOptions look = terminal_options();
  Table table({Align::left, Align::left});
  table.add({"checkpoint", printable(files.path().string())});
  table.add({"model", fmt::format("{} · {} parameters in {}", printable(manifest.model.name),
                                  format_count(static_cast<double>(saved_parameters(files))),
                                  manifest.dtype)});
  table.add({"step", fmt::format("{} · {} samples · {} tokens", manifest.step, manifest.samples,
                                 format_count(static_cast<double>(manifest.tokens)))});
  table.add({"files", fmt::format("{} of {} ranks · {}", manifest.files.size(), manifest.ranks,
                                  format_bytes(Bytes(manifest.bytes())))});
  table.add({"written by", printable(manifest.program)});
  for (const auto* list : {&manifest.identity, &manifest.settings})
    for (const checkpoint::Setting& setting : *list)
      table.add({printable(setting.name), printable(setting.value)});
  std::string text = table.text(look);
  if (!tensors) return text;
  Table all({Align::left, Align::left, Align::left, Align::right});
  all.add({"tensor", "dtype", "shape", "rectangles"});
  for (const std::string& name : files.names()) {
    const TensorFiles::Entry& entry = *files.find(name);
    all.add({printable(name), entry.dtype, fmt::format("{}", fmt::join(entry.shape, " × ")),
             std::to_string(entry.rectangles.size())});
  }
  return text + "\n" + all.text(look);
}

int run_show(const ShowFlags& flags) {
  const Format format = read_format(flags.format);
  const TensorFiles files(find_checkpoint(flags.folder));
  if (format == Format::json) {
    print(show_json(files, flags.tensors));
  } else {
    print(show_text(files, flags.tensors));
  }
  return kOk;
}

int run_verify(const std::string& folder) {
  const TensorFiles files(find_checkpoint(folder));
  for (const std::string& name : files.names())
    if (const std::int64_t missing = missing_elements(*files.find(name)); missing > 0)
      throw Error({.what = fmt::format("{} elements of tensor '{}' are in no file", missing, name),
                   .where = files.path().string(),
                   .fix = "use another checkpoint"});
  for (const auto& file : files.files()) file->expect_all_sound();
  files.expect_whole();
  print(fmt::format("{}: {} tensors in {} files, {}: every byte is as it was written\n",
                    printable(files.path().string()), files.names().size(),
                    files.manifest()->files.size(),
                    format_bytes(Bytes(files.manifest()->bytes()))));
  return kOk;
}

// How two tensors of one name differ: the largest distance, and that over the largest value; or one
// sentence. Empty: not at all.
std::vector<std::string> difference(const TensorFiles& a, const TensorFiles& b,
                                    const std::string& name) {
  const TensorFiles::Entry *first = a.find(name), *second = b.find(name);
  if (first == nullptr || second == nullptr)
    return {"", "", first == nullptr ? "in the second alone" : "in the first alone"};
  if (first->shape != second->shape)
    return {"", "",
            fmt::format("[{}] and [{}]", fmt::join(first->shape, ", "),
                        fmt::join(second->shape, ", "))};
  const at::Tensor one = a.read(name).to(at::kDouble), two = b.read(name).to(at::kDouble);
  const std::string types =
      first->dtype == second->dtype ? "" : first->dtype + " and " + second->dtype;
  if (one.equal(two)) {
    if (types.empty()) return {};
    return {"0", "0", types};
  }
  const auto apart = one.sub(two).abs().max().item<double>();
  return {fmt::format("{:.3g}", apart),
          fmt::format("{:.2g}", apart / one.abs().max().item<double>()), types};
}

int run_diff(const std::string& a, const std::string& b) {
  const TensorFiles first(find_checkpoint(a)), second(find_checkpoint(b));
  std::vector<std::string> names = first.names();
  for (const std::string& name : second.names())
    if (first.find(name) == nullptr) names.push_back(name);
  Table table({Align::left, Align::right, Align::right, Align::left});
  table.add({"tensor", "apart", "of largest", ""});
  std::size_t differ = 0;
  for (const std::string& name : names) {
    std::vector<std::string> row = difference(first, second, name);
    if (row.empty()) continue;
    ++differ;
    row.insert(row.begin(), printable(name));
    table.add(std::move(row));
  }
  const std::string sum = fmt::format("{} of {} tensors differ\n", differ, names.size());
  print(differ == 0 ? sum : table.text(terminal_options()) + "\n" + sum);
  return differ == 0 ? kOk : kInfeasible;
}

struct ExportFlags {
  std::string folder, to, config, out, dtype, max_shard, tokenizer;
};

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
        "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model",
        "generation_config.json", "preprocessor_config.json", "chat_template.jinja"})
    if (fs::exists(from / name)) write_text(to / name, read_text(from / name));
}

int run_export(const ExportFlags& flags) {
  read_choice(flags.to, "--to", {"hf"});
  checkpoint::ExportOptions options;
  options.out = flags.out;
  options.config = read_text(flags.config);
  if (!flags.dtype.empty()) {
    constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};
    options.dtype = kTypes[read_choice(flags.dtype, "--dtype", {"fp64", "fp32", "bf16", "fp16"})];
  }
  if (const auto size = read_memory(flags.max_shard)) options.max_shard = size->value();
  const TensorFiles files(find_checkpoint(flags.folder));
  const Json json = parse_json(options.config, flags.config);
  const Model model = model_from_json(json, flags.config, files.manifest()->model.sequence);
  const checkpoint::Exported exported = checkpoint::export_huggingface(files, model, options);
  if (!flags.tokenizer.empty()) copy_tokenizer(flags.tokenizer, options.out);
  print(fmt::format("{}: {} parameters, {} in {} files\n", printable(flags.out),
                    format_count(static_cast<double>(exported.parameters)),
                    format_bytes(Bytes(exported.bytes)), exported.files.size()));
  return kOk;
}

void add_show(const Verb& app, Run& run) {
  const auto flags = std::make_shared<ShowFlags>();
  const Verb verb = app.add("show", "what is in a checkpoint");
  const Options option(verb);
  option("folder", flags->folder, "FOLDER", "a checkpoint, or a run's folder of them").required();
  verb.flag("--tensors", flags->tensors, "list all tensors");
  option("--format", flags->format, "NAME", "text (default) or json");
  verb.examples({"braid checkpoint show run1/step-00000500 --tensors"});
  verb.when_chosen([flags, &run] { run = [flags] { return run_show(*flags); }; });
}

void add_verify(const Verb& app, Run& run) {
  const auto folder = std::make_shared<std::string>();
  const Verb verb = app.add("verify", "is every byte of a checkpoint as it was written?");
  Options option(verb);
  option("folder", *folder, "FOLDER", "a checkpoint, or a run's folder of them").required();
  verb.examples({"braid checkpoint verify run1"});
  verb.when_chosen([folder, &run] { run = [folder] { return run_verify(*folder); }; });
}

void add_diff(const Verb& app, Run& run) {
  const auto folders = std::make_shared<std::pair<std::string, std::string>>();
  const Verb verb = app.add("diff", "which tensors differ between two checkpoints, and how far");
  Options option(verb);
  option("a", folders->first, "FOLDER", "a checkpoint, or a run's folder of them").required();
  option("b", folders->second, "FOLDER", "the other one").required();
  verb.examples({"braid checkpoint diff run1/step-00000500 run2/step-00000500"});
  verb.remark("Exit status: 0 all tensors are equal, 3 some differ.");
  verb.when_chosen(
      [folders, &run] { run = [folders] { return run_diff(folders->first, folders->second); }; });
}

void add_export(const Verb& app, Run& run) {
  const auto flags = std::make_shared<ExportFlags>();
  const Verb verb = app.add("export", "write the weights as other programs load them");
  const Options option(verb);
  option("folder", flags->folder, "FOLDER", "a checkpoint, or a run's folder of them").required();
  option("--to", flags->to, "NAME", "hf: what Hugging Face transformers loads").required();
  option("--config", flags->config, "FILE", "the config.json that the model was planned from")
      .required();
  option("--out", flags->out, "FOLDER", "a new folder").required();
  option("--dtype", flags->dtype, "NAME", "fp64, fp32, bf16 or fp16 (default: as it was saved)");
  option("--max-shard", flags->max_shard, "SIZE", "of a file's tensors (default 5GB)");
  option("--tokenizer", flags->tokenizer, "FOLDER", "copy the tokenizer's files from there");
  verb.examples(
      {"braid checkpoint export run1 --to hf --config config.json --out published --dtype bf16"});
  verb.when_chosen([flags, &run] { run = [flags] { return run_export(*flags); }; });
}

}  // namespace

void add_checkpoint(const Verb& app, Run& run) {
  const Verb verb = app.add("checkpoint", "look into checkpoints, check and export them");
  verb.needs_one_below();
  add_show(verb, run);
  add_verify(verb, run);
  add_diff(verb, run);
  add_export(verb, run);
  verb.examples({"braid checkpoint show run1", "braid checkpoint verify run1"});
}

}  // namespace braid::cli
