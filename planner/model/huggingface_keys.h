#pragma once
// Every key of a Hugging Face config.json that Braid knows, by family: those of transformers 5.17's
// config classes and those of older published files. The readers take their defaults from here.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid::huggingface {

enum class KeyUse {
  read,      // changes the model
  alias,     // another spelling of the key `usual`
  harmless,  // changes neither layers nor loss
  dropout,   // a rate that training takes from --dropout instead; ignored with a warning
  fixed,     // refused unless it is `usual`
};

struct ConfigKey {
  std::string_view name;
  KeyUse use;
  std::string_view usual;   // JSON: of `read` the value where absent ("": none, the key is needed)
  std::string_view reason;  // why `harmless`; what a `fixed` key would ask for
};

// The key of a family's configs, or nullptr where it is unknown.
const ConfigKey* find_key(std::string_view family, std::string_view name);
// All keys of a family: its own, then those that it shares with others.
std::vector<ConfigKey> keys_of(std::string_view family);
// The class that Braid's model corresponds to, an entry of "architectures".
std::string_view architecture_of(std::string_view family);

}  // namespace braid::huggingface
