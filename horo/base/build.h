// Which build of horo this is: said in logs, by `horo --version`, and told to peers so that a mixed job can name both.
#pragma once

#include <string_view>

namespace horo {

struct BuildInfo {
  std::string_view version;       ///< "0.1.0"
  std::string_view compiler;      ///< "gcc 12.2.0"
  std::string_view architecture;  ///< "x86_64", "aarch64"
  std::string_view build_type;    ///< "Release"
  std::string_view sanitizers;    ///< "address,undefined"; empty without
};

const BuildInfo& build_info();

}  // namespace horo
