#pragma once
// What a profile's figures hold for: the shapes of the layers that were timed, their sequence, the
// precision, the kind of device and the program that measured. Under anything else its prices would
// be those of another model.

#include <string>
#include <string_view>
#include <vector>

#include "planner/profile/profile.h"

namespace braid {

// What a profile is asked to price. `program`: "braid 0.1.0", as the fact of that name; empty where
// it is not to be checked.
struct ProfileUse {
  const Model& model;
  const Cluster& cluster;
  Precision precision = Precision::bf16;  // of compute
  std::string_view program;
};

// What differs, as "decoder.hidden: 512 in the profile, 768 here"; empty where the profile holds. A
// profile of hardware alone has no layers and holds for every model.
std::vector<std::string> misfits(const Profile& profile, const ProfileUse& use);
// What cannot be told because the profile does not carry it: "layer shapes and sequence"; empty
// where all was compared.
std::string not_comparable(const Profile& profile);
// Timed passes that are faster than the devices' peak allows, as "decoder, 4 samples: forward
// in 1.00 us, 1.50 ms at peak". Shapes and devices that the profile does not carry are those asked
// for.
std::vector<std::string> impossible_times(const Profile& profile, const ProfileUse& use);

// Raises the measured peaks of the profile's devices to the rate of its fastest layer: a busy
// machine can time the product that gives the peak slower than a layer.
void raise_peaks(Profile& profile);

// Error that names all of it; `file` is the profile's.
void expect_holds(const Profile& profile, const std::string& file, const ProfileUse& use);

}  // namespace braid
