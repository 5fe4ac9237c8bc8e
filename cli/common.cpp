#include "cli/common.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "cli/version.h"
#include "planner/core/error.h"
#include "planner/core/file.h"
#include "planner/core/json.h"
#include "planner/core/text.h"
#include "planner/plan/legal.h"
#include "planner/profile/binding.h"
#include "planner/profile/fingerprint.h"
#include "planner/search/search.h"

namespace braid::cli {
namespace {

constexpr int kUsualWidth = 80;

// COLUMNS where it is set, else the terminal's width, else 80.
int terminal_columns() {
  if (const char* given = std::getenv("COLUMNS")) {
    const std::string_view text = given;
    int columns = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), columns);
    if (status == std::errc() && end == text.data() + text.size() && columns > 0) return columns;
  }
  winsize size{};
  const bool known = ioctl(fileno(answer_stream()), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualWidth;
}

// The flag that names standard output as its file; empty if none does.
std::string flag_on_standard_output;

int terminal_width() {
  constexpr int kNarrowest = 60;
  constexpr int kWidest = 160;
  return std::clamp(terminal_columns(), kNarrowest, kWidest);
}

// `what` is "model" or "cluster", and so are its flag and the profile's key.
[[noreturn]] void missing(const std::string& what, const std::optional<LoadedProfile>& profile) {
  const std::string flag = "--" + what;
  if (profile)
    throw Error({.what = fmt::format("the profile carries no {}", what),
                 .where = fmt::format("{}: {}", profile->reference.file, what),
                 .fix = fmt::format("pass {} FILE beside it", flag)});
  throw Error({.what = fmt::format("no {} is given", what),
               .where = flag,
               .fix = fmt::format("pass {} FILE, or a --profile that carries one", flag)});
}

}  // namespace

std::optional<std::int64_t> read_count(const std::string& text, const std::string& flag,
                                       IntRange range) {
  if (text.empty()) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status == std::errc::invalid_argument || end != text.data() + text.size())
    throw Error({.what = fmt::format("'{}' is not a whole number", text),
                 .where = flag,
                 .fix = fmt::format("write a whole number from {} to {}", range.low, range.high)});
  if (status != std::errc() || number < range.low || number > range.high)
    throw Error({.what = fmt::format("{} is out of range", text),
                 .where = flag,
                 .fix = fmt::format("write a whole number from {} to {}", range.low, range.high)});
  return number;
}

std::optional<Bytes> read_memory(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const Bytes size = parse_bytes(text, "--memory");
  if (size == Bytes(0))
    throw Error({.what = "a device without memory holds no plan",
                 .where = "--memory",
                 .fix = "write for example 80GiB, or leave --memory out to use all there is"});
  return size;
}

std::size_t read_choice(const std::string& text, const std::string& flag,
                        const std::vector<std::string>& names) {
  const Json value = text;
  return JsonValue(value, flag).choice(names);
}

Precision read_gradients(const std::string& text, Precision precision) {
  constexpr Precision kGradients[] = {Precision::fp32, Precision::bf16};
  const Precision gradients = read_enum(text, "--gradients", kGradients);
  if (!can_have_gradients(precision, gradients))
    throw Error({.what = "gradients in bf16 of a model that computes in fp32",
                 .where = "--gradients",
                 .fix = "leave it out, or compute in bf16 (--precision)"});
  return gradients;
}

void choose_precisions(SearchOptions& options, const std::optional<LoadedProfile>& profile,
                       const std::string& precision, const std::string& gradients) {
  if (!precision.empty()) options.precision = read_enum(precision, "--precision", kPrecisions);
  if (profile && precision.empty()) options.precision = profile->profile.precision;
  if (!gradients.empty())
    options.gradient_precision = read_gradients(gradients, options.precision);
  else if (profile && can_have_gradients(options.precision, profile->profile.gradient_precision))
    options.gradient_precision = profile->profile.gradient_precision;
}

Format read_format(const std::string& text) {
  return static_cast<Format>(read_choice(text, "--format", {"text", "json"}));
}

std::FILE* answer_stream() { return flag_on_standard_output.empty() ? stdout : stderr; }

bool is_terminal(std::FILE* stream) {
  const char* kind = std::getenv("TERM");
  const bool dumb = kind != nullptr && std::string_view(kind) == "dumb";
  return isatty(fileno(stream)) != 0 && !dumb;
}

RenderOptions terminal_options() {
  const char* no_color = std::getenv("NO_COLOR");
  const bool color = is_terminal(answer_stream()) && (no_color == nullptr || *no_color == '\0');
  return {.color = color, .width = terminal_width()};
}

void print(const std::string& text) {
  std::FILE* stream = answer_stream();
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  if (!written || std::fflush(stream) != 0)
    throw Error({.what = fmt::format("cannot write the answer: {}", std::strerror(errno)),
                 .where = stream == stdout ? "standard output" : "standard error",
                 .fix = "check where it is redirected to"});
}

void print(const Json& json) {
  print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::string place_of(const std::string& file) {
  return is_standard_output(file) ? "on standard output" : "in " + printable(file);
}

void note(const std::string& text) { fmt::print(stderr, "braid: {}\n", text); }

void tell(const Mistake& mistake) {
  std::string text = fmt::format("braid: error: {}\n", mistake.what);
  if (!mistake.where.empty()) text += fmt::format("  where: {}\n", mistake.where);
  if (!mistake.fix.empty()) text += fmt::format("  fix:   {}\n", mistake.fix);
  std::fputs(text.c_str(), stderr);  // in one piece: ranks write at the same time
}

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const std::string_view text = error.what();
  return text.find("can't allocate memory") != text.npos ||
         text.find("CUDA out of memory") != text.npos;
}

Mistake out_of_memory(const std::exception& error) {
  constexpr std::string_view kAsked = "you tried to allocate ";
  const std::string_view text = error.what();
  std::string what = "out of memory";
  if (const std::size_t at = text.find(kAsked); at != text.npos) {
    std::int64_t bytes = 0;
    const char* digits = text.data() + at + kAsked.size();
    if (std::from_chars(digits, text.data() + text.size(), bytes).ec == std::errc())
      what += fmt::format(": {} could not be allocated", format_bytes(Bytes(bytes)));
  } else if (const std::size_t gpu = text.find("CUDA out of memory"); gpu != text.npos) {
    what = text.substr(gpu, text.find('\n', gpu) - gpu);
  }
  return {std::move(what), "this machine",
          "take a smaller --global-batch, more devices or a smaller model; 'braid train --dry-run' "
          "shows what a plan holds"};
}

void expect_writable(const std::filesystem::path& file, const std::string& flag) {
  try {
    braid::expect_writable(file);
  } catch (const Error& error) {
    Mistake mistake = error.mistake();
    mistake.where = fmt::format("{} {}", flag, mistake.where);
    throw Error(std::move(mistake));
  }
  if (!is_standard_output(file)) return;
  if (!flag_on_standard_output.empty())
    throw Error({.what = "two files are to be written to standard output",
                 .where = fmt::format("{} and {}", flag_on_standard_output, flag),
                 .fix = "name another file for one of them"});
  flag_on_standard_output = flag;
}

Model load_model(const std::filesystem::path& file, std::int64_t sequence, bool tells) {
  const Json json = read_json(file);
  Model model = model_from_json(json, file.string(), sequence);
  if (tells)
    for (const std::string& warning : config_warnings(json, file.string())) note(warning);
  return model;
}

LoadedProfile load_profile(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  return {profile_from_json(parse_json(text, file.string()), file.string()),
          {file.string(), fingerprint(text)}};
}

void expect_holds(const LoadedProfile& profile, const Model& model, const Cluster& cluster,
                  Precision precision) {
  const std::string program = fmt::format("braid {}", kVersion);
  expect_holds(profile.profile, profile.reference.file,
               ProfileUse{model, cluster, precision, program});
  if (const std::string open = not_comparable(profile.profile); !open.empty())
    note(fmt::format("the profile carries no {}: whether they are this task's was not checked",
                     open));
}

Task load_task(const TaskFlags& flags) {
  const std::int64_t sequence = read_count(flags.sequence, "--seq", limits::kTokens).value_or(0);
  const auto devices = read_count(flags.devices, "--devices", limits::kDevices);
  Task task;
  if (!flags.profile.empty()) task.profile = load_profile(flags.profile);

  if (!flags.model.empty()) {
    task.model = load_model(flags.model, sequence);
  } else {
    if (!task.profile || !task.profile->profile.model) missing("model", task.profile);
    const Model& carried = *task.profile->profile.model;
    task.model = sequence == 0 ? carried : with_sequence(carried, sequence);
  }
  if (!flags.cluster.empty()) {
    task.cluster = read_cluster(flags.cluster);
  } else {
    if (!task.profile || !task.profile->profile.cluster) missing("cluster", task.profile);
    task.cluster = *task.profile->profile.cluster;
  }
  if (devices) task.cluster = shrink(task.cluster, static_cast<int>(*devices));
  return task;
}

}  // namespace braid::cli
