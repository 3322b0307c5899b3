// Named points in the code where tests kill, delay or fail a rank: exactly between two steps, instead of at a random
// instant. They are there only where the library is built with HORO_FAILPOINTS (which builds with tests are, and wheels
// are not); otherwise nothing of them is left.
//
//   TEST_FAILPOINTS="reform.view=kill@2;group.offer=delay:50ms;reform.group=error"
//
// kill@N, delay:TIME@N and error@N act at the N-th passage (kill and error then once, a delay from then on); without @N
// at the first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "horo/base/status.h"

#ifdef HORO_FAILPOINTS

namespace horo {

/// What the points of this process do from now on, instead of what the environment says. kInvalidArgument for words
/// that are none.
Status arm_failpoints(std::string_view words);
/// Not OK where an error is armed.
Status pass_failpoint(std::string_view name);
/// Every name that pass_failpoint() was called with in this process while something was armed, sorted.
std::vector<std::string> passed_failpoints();

}  // namespace horo

/// Where an error cannot be returned: kills and delays.
#define HORO_FAILPOINT(name) (void)::horo::pass_failpoint(name).ok()
/// In a function that returns a Status or a Result.
#define HORO_FAILPOINT_TRY(name) HORO_TRY(::horo::pass_failpoint(name))

#else

#define HORO_FAILPOINT(name) static_cast<void>(0)
#define HORO_FAILPOINT_TRY(name) static_cast<void>(0)

#endif
