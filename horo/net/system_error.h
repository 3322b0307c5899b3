// Errors of the operating system as Status.
#pragma once

#include <string_view>

#include "horo/base/status.h"

namespace horo::net {

/// "`what`: Connection refused (errno 111)", with what to do about it where that is known (descriptor limits, ports in
/// use). The code follows from the error: a broken connection is kPeerLost, a shortage or refusal kUnavailable.
Status system_error(std::string_view what, int error);

}  // namespace horo::net
