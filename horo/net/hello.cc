#include "horo/net/hello.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "horo/base/build.h"
#include "horo/base/text.h"
#include "horo/net/codec.h"

namespace horo::net {
namespace {

constexpr uint32_t kHelloMagic = 0x4F4C4548;  // "HELO"
constexpr size_t kMostText = 128;
constexpr size_t kMostReason = 1024;

std::string_view cut(std::string_view text, size_t limit) { return text.substr(0, limit); }

std::string versions(const Hello& hello) {
  if (hello.lowest_version == hello.highest_version) return text("version ", hello.lowest_version);
  return text("versions ", hello.lowest_version, " to ", hello.highest_version);
}

Status lacks(const Hello& who, uint64_t missing, const Hello& by) {
  if ((missing & feature::kEncryptsData) != 0) {
    return {Code::kIncompatible, text(by.to_string(), " runs with HORO_ENCRYPT=1, ", who.to_string(),
                                      " with HORO_ENCRYPT=0; set it equally on all ranks")};
  }
  return {Code::kIncompatible, text(by.to_string(), " requires feature bits ", missing, " that ", who.to_string(),
                                    " does not have; install the same version of horo on both")};
}

}  // namespace

std::string Hello::to_string() const {
  return text(member_text(member), " (", host, "; horo ", build, ", ", architecture, ")");
}

Hello local_hello(Member member, uint64_t epoch) {
  Hello hello;
  utsname system{};
  if (uname(&system) == 0) hello.host = text(system.nodename, ", pid ", getpid());
  hello.architecture = build_info().architecture;
  hello.build = build_info().version;
  hello.member = member;
  hello.epoch = epoch;
  return hello;
}

std::vector<std::byte> encode(const Hello& hello) {
  Writer body(Hello::kMostBytes);
  body.u16(hello.lowest_version);
  body.u16(hello.highest_version);
  body.u64(hello.features);
  body.u64(hello.required_features);
  body.string(cut(hello.architecture, kMostText));
  body.string(cut(hello.build, kMostText));
  body.string(cut(hello.host, kMostText));
  body.u64(hello.member);
  body.u64(hello.epoch);
  body.u32(static_cast<uint32_t>(hello.verdict));
  body.string(cut(hello.reason, kMostReason));
  HORO_CHECK(body.ok(), "the limits of a Hello's texts add up to less than its own");
  Writer whole(Hello::kPrefixBytes + Hello::kMostBytes);
  whole.u32(kHelloMagic);
  whole.bytes(body.data());
  return whole.take();
}

Result<size_t> decode_hello_prefix(std::span<const std::byte, Hello::kPrefixBytes> prefix) {
  Reader in(prefix, "a Hello");
  if (in.u32() != kHelloMagic) in.fail("it does not begin with HELO");
  uint32_t length = in.u32();
  if (in.ok() && length > Hello::kMostBytes) {
    in.fail(text("a length of ", length, " exceeds the limit of ", Hello::kMostBytes));
  }
  HORO_TRY(in.finish());
  return length;
}

Result<Hello> decode_hello_body(std::span<const std::byte> body) {
  Reader in(body, "a Hello");
  Hello hello;
  hello.lowest_version = in.u16();
  hello.highest_version = in.u16();
  if (hello.lowest_version > hello.highest_version) in.fail("its lowest version is above its highest");
  hello.features = in.u64();
  hello.required_features = in.u64();
  hello.architecture = in.string(kMostText);
  hello.build = in.string(kMostText);
  hello.host = in.string(kMostText);
  hello.member = in.u64();
  hello.epoch = in.u64();
  uint32_t verdict = in.u32();
  // A code of a later version is still a refusal.
  hello.verdict = static_cast<Code>(std::min<uint32_t>(verdict, static_cast<uint32_t>(Code::kInternal)));
  hello.reason = in.string(kMostReason);
  HORO_TRY(in.status());
  return hello;
}

Result<uint16_t> agree(const Hello& mine, const Hello& theirs) {
  uint16_t version = std::min(mine.highest_version, theirs.highest_version);
  if (version < std::max(mine.lowest_version, theirs.lowest_version)) {
    return Status(Code::kIncompatible,
                  text(mine.to_string(), " speaks wire ", versions(mine), ", ", theirs.to_string(), " speaks ",
                       versions(theirs), "; install the same version of horo on both"));
  }
  if (uint64_t missing = mine.required_features & ~theirs.features) return lacks(theirs, missing, mine);
  if (uint64_t missing = theirs.required_features & ~mine.features) return lacks(mine, missing, theirs);
  if (mine.epoch != theirs.epoch) {
    return Status(Code::kIncompatible, text(mine.to_string(), " is in epoch ", mine.epoch, ", ", theirs.to_string(),
                                            " in epoch ", theirs.epoch, "; the older one must join again"));
  }
  return version;
}

}  // namespace horo::net
