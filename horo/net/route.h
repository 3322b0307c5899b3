// Which of this host's addresses another host sees.
#pragma once

#include <string>

#include "horo/base/status.h"
#include "horo/net/address.h"

namespace horo::net {

/// The address (port 0) that packets to `to` would come from, by this host's routing table. Nothing is sent.
/// kUnavailable when there is no route.
Result<Address> source_address(const Address& to);

/// Without port and brackets: "10.0.0.1", "fd00::1", "fe80::1%eth0". Empty for what is no IP address.
std::string ip_text(const Address& address);

}  // namespace horo::net
