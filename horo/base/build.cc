#include "horo/base/build.h"

namespace horo {

// The words come from the build system: module.cmake beside this file.
const BuildInfo& build_info() {
  static constexpr BuildInfo kInfo{HORO_BUILD_VERSION, HORO_BUILD_COMPILER, HORO_BUILD_ARCHITECTURE, HORO_BUILD_TYPE,
                                   HORO_BUILD_SANITIZERS};
  return kInfo;
}

}  // namespace horo
