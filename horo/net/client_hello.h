// The first message of a TLS 1.3 handshake, read far enough to know for whom it is: before anything is spent on it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace horo::net {

/// Bytes of the TLS record that begins with these, header included; nothing yet for fewer than five.
std::optional<size_t> record_bytes(std::span<const std::byte> first);

/// The first pre-shared key identity that a whole ClientHello record offers (RFC 8446, 4.1.2 and 4.2.11), a view into
/// it. Nothing when the record is no ClientHello that fills it, or offers none. That the identity is true is for the
/// handshake to find out.
std::optional<std::span<const std::byte>> offered_identity(std::span<const std::byte> record);

}  // namespace horo::net
