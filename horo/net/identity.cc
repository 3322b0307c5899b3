#include "horo/net/identity.h"

#include <cstring>

#include "horo/base/text.h"
#include "horo/net/codec.h"

namespace horo::net {
namespace {

/// Begins every identity; the number changes with the handshake.
constexpr std::string_view kLabel = "horo/1";
constexpr Member kAnonymousBit = uint64_t{1} << 63;

}  // namespace

Member anonymous_member() {
  Member member = kStoreMember;
  while (member == kStoreMember) {
    fill_random(std::as_writable_bytes(std::span(&member, 1)));
    member |= kAnonymousBit;
  }
  return member;
}

std::string member_text(Member member) {
  if (member == kStoreMember) return "the store";
  if ((member & kAnonymousBit) != 0) return "an unranked process";
  return text("rank ", member);
}

std::string Identity::to_string() const {
  return text(member_text(connector), " to ", member_text(acceptor), ", epoch ", epoch, ", job '", job, "'");
}

Result<std::vector<std::byte>> encode(const Identity& identity) {
  if (identity.job.size() > Identity::kMostJobBytes) {
    return Status(Code::kInvalidArgument,
                  text("a job's name has at most ", Identity::kMostJobBytes, " bytes, not ", identity.job.size()));
  }
  if (identity.connector == identity.acceptor) {
    return Status(Code::kInvalidArgument, text(member_text(identity.connector), " connects to itself"));
  }
  Writer out(Identity::kMostBytes);
  out.raw(std::as_bytes(std::span(kLabel)));
  out.u8(static_cast<uint8_t>(identity.purpose));
  out.u64(identity.epoch);
  out.u64(identity.connector);
  out.u64(identity.acceptor);
  out.string(identity.job);
  HORO_TRY(out.status());
  return out.take();
}

Result<Identity> decode_identity(std::span<const std::byte> bytes) {
  Reader in(bytes, "an identity");
  auto label = in.raw(kLabel.size());
  if (in.ok() && std::memcmp(label.data(), kLabel.data(), kLabel.size()) != 0) in.fail("it is of another protocol");
  Identity identity;
  uint8_t purpose = in.u8();
  if (in.ok() && (purpose < 1 || purpose > 3)) in.fail(text("purpose ", static_cast<int>(purpose), " is unknown"));
  identity.purpose = static_cast<Purpose>(purpose);
  identity.epoch = in.u64();
  identity.connector = in.u64();
  identity.acceptor = in.u64();
  identity.job = in.string(Identity::kMostJobBytes);
  HORO_TRY(in.finish());
  return identity;
}

Status check_addressed(const Identity& claimed, const std::string& job, Member self) {
  if (claimed.connector == self) {
    return {Code::kUnauthenticated, text(member_text(self),
                                         " got a connection that claims to come from itself: "
                                         "a second process uses this rank, or a connection was sent back")};
  }
  if (claimed.acceptor != self) {
    return {Code::kUnauthenticated, text("a connection for ", member_text(claimed.acceptor), " reached ",
                                         member_text(self), "; its address book is wrong")};
  }
  if (claimed.job != job) {
    return {Code::kUnauthenticated, text("a connection for job '", claimed.job, "' reached job '", job, "'")};
  }
  return {};
}

Result<Key> derive_psk(const Key& job_key, std::span<const std::byte> encoded_identity) {
  return job_key.derive("horo tls psk", encoded_identity);
}

}  // namespace horo::net
