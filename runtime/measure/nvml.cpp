// What NVIDIA's management library says. The driver brings it, so that it is loaded where it is
// found, and the few declarations that are needed stand here.

#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <memory>
#include <set>

#include "planner/core/text.h"
#include "runtime/measure/host.h"

namespace braid::measure {

namespace {

using Status = int;  // 0: done
using Device = void*;
constexpr int kNvLink = 2;  // of what a pair of devices may have

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

class Nvml {
 public:
  static std::unique_ptr<Nvml> open() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    auto nvml = std::unique_ptr<Nvml>(new Nvml(library));
    return nvml->ready_ ? std::move(nvml) : nullptr;
  }
  ~Nvml() {
    if (ready_) call("nvmlShutdown");
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Whether the library has the function and it succeeded.
  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    using Function = Status (*)(Arguments...);
    const auto function = reinterpret_cast<Function>(dlsym(library_.get(), name));
    return function != nullptr && function(arguments...) == 0;
  }

 private:
  explicit Nvml(void* library) : library_(library) { ready_ = call("nvmlInit_v2"); }

  std::unique_ptr<void, CloseLibrary> library_;
  bool ready_ = false;
};

template <class... Arguments>
std::string text_of(const Nvml& nvml, const char* name, Arguments... arguments) {
  std::array<char, 128> text{};
  const bool done =
      nvml.call(name, arguments..., text.data(), static_cast<unsigned int>(text.size() - 1));
  return done ? text.data() : "";
}

bool all_pairs_have_nvlink(const Nvml& nvml, const std::vector<Device>& devices) {
  for (std::size_t i = 0; i < devices.size(); ++i)
    for (std::size_t j = 0; j < devices.size(); ++j) {
      int status = 1;
      if (i != j &&
          (!nvml.call("nvmlDeviceGetP2PStatus", devices[i], devices[j], kNvLink, &status) ||
           status != 0))
        return false;
    }
  return devices.size() > 1;
}

// The widest that device and slot can do: what is in use falls while a GPU is idle.
std::string slots(const Nvml& nvml, const std::vector<Device>& devices) {
  std::set<std::string> kinds;
  for (const Device device : devices) {
    unsigned int generation = 0, width = 0;
    if (nvml.call("nvmlDeviceGetMaxPcieLinkGeneration", device, &generation) &&
        nvml.call("nvmlDeviceGetMaxPcieLinkWidth", device, &width))
      kinds.insert(fmt::format("PCIe {} x{}", generation, width));
  }
  return join(std::vector<std::string>(kinds.begin(), kinds.end()), ", ");
}

}  // namespace

std::optional<Gpus> find_gpus() {
  const auto nvml = Nvml::open();
  unsigned int count = 0;
  if (!nvml || !nvml->call("nvmlDeviceGetCount_v2", &count)) return std::nullopt;
  Gpus gpus;
  gpus.driver = text_of(*nvml, "nvmlSystemGetDriverVersion");
  std::vector<Device> devices;
  for (unsigned int i = 0; i < count; ++i) {
    Device device = nullptr;
    if (!nvml->call("nvmlDeviceGetHandleByIndex_v2", i, &device)) continue;
    devices.push_back(device);
    gpus.names.push_back(text_of(*nvml, "nvmlDeviceGetName", device));
  }
  gpus.link = all_pairs_have_nvlink(*nvml, devices) ? "NVLink" : slots(*nvml, devices);
  return gpus;
}

}  // namespace braid::measure
