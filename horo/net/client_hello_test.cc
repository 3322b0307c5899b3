#include "horo/net/client_hello.h"

#include <gtest/gtest.h>

#include <cstring>

#include "horo/net/identity.h"
#include "horo/net/tls.h"

namespace horo::net {
namespace {

/// Keeps what TLS says and answers nothing.
class Recorder : public Wire {
 public:
  IoResult receive(std::span<std::byte>) override { return IoResult::would_block(); }
  IoResult send(std::span<const std::byte> data) override {
    said.insert(said.end(), data.begin(), data.end());
    return IoResult::moved(data.size());
  }
  std::vector<std::byte> said;
};

const Identity kIdentity{"job", Purpose::kControl, 3, 1, 0};

std::vector<std::byte> first_flight() {
  Recorder wire;
  auto session = TlsSession::connect(*Tls::create(), wire, *encode(kIdentity), *Key::random());
  EXPECT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->handshake().is_would_block());
  return wire.said;
}

TEST(ClientHello, TellsWhomARealOneIsFor) {
  const auto record = first_flight();
  EXPECT_EQ(record_bytes(record), record.size());
  const auto offered = offered_identity(record);
  ASSERT_TRUE(offered.has_value());
  EXPECT_EQ(*decode_identity(*offered), kIdentity);
}

TEST(ClientHello, ThatIsNotWholeOffersNothing) {
  const auto record = first_flight();
  for (size_t length = 0; length < record.size(); ++length) {
    EXPECT_FALSE(offered_identity({record.data(), length}).has_value()) << length;
  }
  auto longer = record;
  longer.push_back({});
  EXPECT_FALSE(offered_identity(longer).has_value());
  EXPECT_FALSE(record_bytes({record.data(), 4}).has_value());
}

TEST(ClientHello, WithALengthThatLiesOffersNothingBeyondItsEnd) {
  const auto record = first_flight();
  for (size_t at = 0; at < record.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto changed = record;
      changed[at] ^= static_cast<std::byte>(1 << bit);
      const auto offered = offered_identity(changed);
      if (!offered) continue;
      EXPECT_LE(offered->data() + offered->size(), changed.data() + changed.size());
    }
  }
}

}  // namespace
}  // namespace horo::net
