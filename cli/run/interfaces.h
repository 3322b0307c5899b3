// At which address a host is reached by the others of a job.
#pragma once

#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/net/address.h"

namespace horo::cli::launch {

/// The first of `wanted` (names of interfaces, or addresses) that this host has. kNotFound lists what there is.
Result<net::Address> first_interface(const std::vector<std::string>& wanted);

/// The address that packets to the first of `peers` with a route would come from, loopback left aside; without peers,
/// loopback.
Result<net::Address> address_towards(const std::vector<std::string>& peers);

/// What hosts that nobody knows yet most likely reach this one at: where the default route leads, or loopback.
net::Address address_for_others();

/// Whether one of this host's interfaces has the address.
bool is_own_address(const net::Address& address);

/// Whether `host` (as ssh takes it) is this one: "localhost", its name, or a name or address of one of its interfaces.
bool is_this_host(const std::string& host);

/// Without "user@".
std::string bare_host(const std::string& host);

}  // namespace horo::cli::launch
