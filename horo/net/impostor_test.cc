// Impostors who hold something genuine: a recorded session, one's own words sent back, the key of the job under another
// rank, a rank that is taken, a key of an old epoch, a weaker protocol. Each is tried TEST_ROUNDS times, with other
// ranks and epochs each time.
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <cstdlib>
#include <optional>
#include <set>

#include "horo/net/attach.h"
#include "horo/net/channel.h"
#include "horo/net/testing.h"
#include "horo/net/tls.h"

namespace horo::net {
namespace {

using testing::soon;
using Bytes = std::vector<std::byte>;

int rounds() {
  const char* given = std::getenv("TEST_ROUNDS");
  return given != nullptr ? std::atoi(given) : 200;
}

/// Takes what has arrived and adds it to `all`.
Bytes taken(const Socket& from) {
  Bytes bytes(1 << 14);
  const IoResult got = from.receive(bytes);
  bytes.resize(got.is_moved() ? got.bytes() : 0);
  return bytes;
}

void append(Bytes& all, const Bytes& more) { all.insert(all.end(), more.begin(), more.end()); }

/// Bytes over a socket, for a TlsSession of the test's own.
class SocketWire final : public Wire {
 public:
  explicit SocketWire(Socket socket) : socket_(std::move(socket)) {}
  IoResult receive(std::span<std::byte> into) override { return socket_.receive(into); }
  IoResult send(std::span<const std::byte> data) override { return socket_.send(data); }

 private:
  Socket socket_;
};

/// A job of which each round is another connection.
class Impostor : public ::testing::Test {
 protected:
  struct Recorded {
    Bytes of_connector, of_acceptor;
    std::optional<Channel> connector, acceptor;
  };

  void next_round() {
    epoch_ = 1 + random_() % 1000;
    acceptor_ = random_() % 8;
    connector_ = acceptor_ + 1 + random_() % 8;
  }
  Identity identity() const { return {"job", Purpose::kControl, epoch_, connector_, acceptor_}; }
  ChannelOptions options(Member member) const {
    ChannelOptions options;
    options.hello = local_hello(member, epoch_);
    return options;
  }
  Channel connect(Socket socket) const {
    return *Channel::connect(tls_, std::move(socket), *key_, identity(), options(connector_));
  }
  Channel accept(Socket socket) const {
    return *Channel::accept(tls_, std::move(socket), key_, "job", options(acceptor_));
  }
  /// A whole handshake through a wiretap.
  Recorded record() const {
    auto [a, b] = *Socket::pair();
    auto [c, d] = *Socket::pair();
    Recorded recorded;
    recorded.connector.emplace(connect(std::move(a)));
    recorded.acceptor.emplace(accept(std::move(d)));
    for (int turn = 0; turn < 10; ++turn) {
      EXPECT_TRUE(recorded.connector->progress().ok());
      const Bytes there = taken(b);
      EXPECT_TRUE(c.send_all(there, soon()).ok());
      append(recorded.of_connector, there);
      EXPECT_TRUE(recorded.acceptor->progress().ok());
      const Bytes back = taken(c);
      EXPECT_TRUE(b.send_all(back, soon()).ok());
      append(recorded.of_acceptor, back);
    }
    EXPECT_TRUE(recorded.connector->ready() && recorded.acceptor->ready());
    return recorded;
  }
  /// What `channel` makes of `bytes`, and then of the end of the stream.
  static Status judge(Channel channel, const Socket& end, std::span<const std::byte> bytes) {
    EXPECT_TRUE(end.send_all(bytes, soon()).ok());
    end.shutdown_send();
    Status status;
    for (int turn = 0; turn < 10 && status.ok(); ++turn) status = channel.progress();
    EXPECT_FALSE(channel.ready());
    return status;
  }
  Status accepted(std::span<const std::byte> bytes) const {
    auto [mine, theirs] = *Socket::pair();
    return judge(accept(std::move(theirs)), mine, bytes);
  }
  Status connected(std::span<const std::byte> bytes) const {
    auto [mine, theirs] = *Socket::pair();
    return judge(connect(std::move(theirs)), mine, bytes);
  }
  /// A member of the job, with the right key, who says the wrong thing.
  Status insider(const Identity& claimed, const Identity& key_of, const Hello& hello) const {
    auto [mine, theirs] = *Socket::pair();
    Channel server = accept(std::move(theirs));
    SocketWire wire(std::move(mine));
    auto client = TlsSession::connect(tls_, wire, *encode(claimed), *derive_psk(*key_, *encode(key_of)));
    Status verdict;
    bool said = false;
    for (int turn = 0; turn < 20 && verdict.ok() && !server.ready(); ++turn) {
      if (!said && (*client)->handshake().is_moved()) said = (*client)->send(encode(hello)).is_moved();
      verdict = server.progress();
    }
    EXPECT_FALSE(server.ready());
    return verdict;
  }

  std::mt19937_64 random_ = testing::seeded();
  std::shared_ptr<const Tls> tls_ = *Tls::create();
  std::shared_ptr<const Key> key_ = std::make_shared<const Key>(*Key::random());
  uint64_t epoch_ = 4;
  Member acceptor_ = 0;
  Member connector_ = 1;
};

TEST_F(Impostor, WithARecordedSessionIsRefusedByBothSides) {
  for (int round = 0; round < rounds(); ++round) {
    next_round();
    const Recorded recorded = record();
    EXPECT_EQ(accepted(recorded.of_connector).code(), Code::kUnauthenticated);
    EXPECT_EQ(connected(recorded.of_acceptor).code(), Code::kUnauthenticated);
  }
}

TEST_F(Impostor, WhoSendsOnesOwnWordsBackIsRefused) {
  for (int round = 0; round < rounds(); ++round) {
    next_round();
    const Recorded recorded = record();
    EXPECT_FALSE(accepted(recorded.of_acceptor).ok()) << "the acceptor's flight, to an acceptor";
    EXPECT_FALSE(connected(recorded.of_connector).ok()) << "the connector's flight, to a connector";
    // The connector's first flight, whole and fresh, to the connector's own door.
    auto [mine, theirs] = *Socket::pair();
    Channel client = connect(std::move(mine));
    EXPECT_TRUE(client.progress().ok());
    std::swap(acceptor_, connector_);
    EXPECT_EQ(accepted(taken(theirs)).code(), Code::kUnauthenticated);
  }
}

TEST_F(Impostor, OfAnotherRankIsRefused) {
  for (int round = 0; round < rounds(); ++round) {
    next_round();
    Identity other = identity();
    other.connector += 1 + random_() % 5;
    // With the key of one rank, another one in the ClientHello; and another one inside TLS.
    EXPECT_EQ(insider(other, identity(), local_hello(other.connector, epoch_)).code(), Code::kUnauthenticated);
    EXPECT_EQ(insider(identity(), identity(), local_hello(other.connector, epoch_)).code(), Code::kUnauthenticated);
    // For another addressee, another purpose's key, another job.
    Identity elsewhere = identity();
    elsewhere.acceptor = connector_ + 7;
    EXPECT_EQ(insider(elsewhere, elsewhere, local_hello(connector_, epoch_)).code(), Code::kUnauthenticated);
    Identity store = identity();
    store.purpose = Purpose::kRendezvous;
    EXPECT_EQ(insider(identity(), store, local_hello(connector_, epoch_)).code(), Code::kUnauthenticated);
    Identity job = identity();
    job.job = "another job";
    EXPECT_EQ(insider(job, job, local_hello(connector_, epoch_)).code(), Code::kUnauthenticated);
  }
}

TEST_F(Impostor, WithTheKeyOfAnOldEpochIsRefused) {
  for (int round = 0; round < rounds(); ++round) {
    next_round();
    Identity old = identity();
    old.epoch -= 1 + random_() % epoch_;
    EXPECT_EQ(insider(identity(), old, local_hello(connector_, epoch_)).code(), Code::kUnauthenticated);
    EXPECT_EQ(insider(old, old, local_hello(connector_, epoch_)).code(), Code::kUnauthenticated);
    EXPECT_EQ(insider(old, old, local_hello(connector_, old.epoch)).code(), Code::kIncompatible);
  }
}

TEST_F(Impostor, OfARankThatIsTakenIsRefusedAndTheHolderIsUndisturbed) {
  next_round();
  const Recorded holder = record();
  const Admit taken_already = [&](const Identity& claimed, const Hello&) {
    return Status(Code::kUnavailable, text(member_text(claimed.connector), " is here already"));
  };
  for (int round = 0; round < rounds(); ++round) {
    auto [mine, theirs] = *Socket::pair();
    Channel second = connect(std::move(mine));
    Channel server = *Channel::accept(tls_, std::move(theirs), key_, "job", options(acceptor_), taken_already);
    Status why;
    for (int turn = 0; turn < 20 && why.ok(); ++turn) {
      (void)server.progress().ok();
      why = second.progress();
    }
    EXPECT_EQ(why.code(), Code::kUnavailable);
    EXPECT_FALSE(second.ready() || server.ready());
  }
  EXPECT_TRUE(holder.connector->ready() && holder.acceptor->ready());
}

// ---- Downgrades
// ------------------------------------------------------------------------------------------------------

/// A client of OpenSSL that holds the right key and wants something weaker, or something else, than horo speaks.
struct Weaker {
  const char* name;
  int version = TLS1_3_VERSION;
  const char* suites = "TLS_AES_128_GCM_SHA256";
  const char* groups = "X25519";
  bool with_key = true;
};
constexpr Weaker kWeaker[] = {
    {.name = "TLS 1.2", .version = TLS1_2_VERSION, .with_key = false},
    {.name = "no pre-shared key", .with_key = false},
    {.name = "another cipher", .suites = "TLS_CHACHA20_POLY1305_SHA256", .with_key = false},
    {.name = "a cipher with another hash", .suites = "TLS_AES_256_GCM_SHA384"},
    {.name = "another key exchange", .groups = "P-256"},
};

int offer(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* size, SSL_SESSION** session) {
  auto* both = static_cast<std::pair<Bytes, Key>*>(SSL_get_app_data(ssl));
  const unsigned char suite[2] = {0x13, 0x01};
  *session = SSL_SESSION_new();
  const auto secret = both->second.secret();
  SSL_SESSION_set1_master_key(*session, reinterpret_cast<const unsigned char*>(secret.data()), secret.size());
  SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, suite));
  SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
  *id = reinterpret_cast<const unsigned char*>(both->first.data());
  *size = both->first.size();
  return 1;
}

TEST_F(Impostor, WhoWantsAWeakerProtocolIsRefused) {
  for (const Weaker& weaker : kWeaker) {
    std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
    ASSERT_EQ(SSL_CTX_set_max_proto_version(context.get(), weaker.version), 1);
    ASSERT_EQ(SSL_CTX_set_ciphersuites(context.get(), weaker.suites), 1);
    ASSERT_EQ(SSL_CTX_set1_groups_list(context.get(), weaker.groups), 1);
    for (int round = 0; round < rounds() / static_cast<int>(std::size(kWeaker)) + 1; ++round) {
      next_round();
      std::pair<Bytes, Key> holds(*encode(identity()), *derive_psk(*key_, *encode(identity())));
      std::unique_ptr<SSL, void (*)(SSL*)> client(SSL_new(context.get()), SSL_free);
      SSL_set_app_data(client.get(), &holds);
      if (weaker.with_key) SSL_set_psk_use_session_callback(client.get(), offer);
      auto [mine, theirs] = *Socket::pair();
      SSL_set_fd(client.get(), mine.fd());
      SSL_set_connect_state(client.get());
      Channel server = accept(std::move(theirs));
      Status verdict;
      for (int turn = 0; turn < 20 && verdict.ok(); ++turn) {
        SSL_do_handshake(client.get());
        verdict = server.progress();
      }
      EXPECT_EQ(verdict.code(), Code::kUnauthenticated) << weaker.name << ": " << verdict;
    }
  }
}

/// Somebody between the two who changes a first flight that asks for no more than horo speaks.
TEST_F(Impostor, WhoChangesWhatIsOfferedIsRefused) {
  for (int round = 0; round < rounds(); ++round) {
    next_round();
    auto [mine, theirs] = *Socket::pair();
    Channel client = connect(std::move(mine));
    EXPECT_TRUE(client.progress().ok());
    Bytes hello = taken(theirs);
    hello[random_() % hello.size()] ^= static_cast<std::byte>(1 << random_() % 8);
    EXPECT_FALSE(accepted(hello).ok());
  }
}

TEST_F(Impostor, AtADataStreamIsRefusedWhateverIsRecordedReflectedOrChanged) {
  const Recorded channel = record();
  AttachSessions sessions;
  sessions.add(*attach_keys(*channel.acceptor, Attaching::kIncoming));
  const AttachKeys keys = *attach_keys(*channel.connector, Attaching::kOutgoing);
  const auto play = [&](std::span<const std::byte> request, std::span<const std::byte> proof) {
    auto [mine, theirs] = *Socket::pair();
    AttachAcceptor acceptor(std::move(theirs), sessions, {}, soon());
    EXPECT_TRUE(mine.send_all(request, soon()).ok());
    Status status = acceptor.progress();
    if (status.ok()) {
      EXPECT_TRUE(mine.send_all(proof, soon()).ok());
      status = acceptor.progress();
    }
    EXPECT_FALSE(acceptor.done());
    return status.code();
  };
  for (int round = 0; round < rounds(); ++round) {
    auto [a, b] = *Socket::pair();
    auto [c, d] = *Socket::pair();
    AttachRequest about;
    about.epoch = epoch_;
    about.stream = static_cast<uint32_t>(round);
    about.protection = Protection::kAesGcm;
    AttachConnector connector(std::move(a), keys, about, soon());
    AttachAcceptor acceptor(std::move(d), sessions, {}, soon());
    Bytes request(AttachRequest::kBytes), challenge(64), proof(32);
    ASSERT_TRUE(connector.progress().ok() && b.receive_all(request, soon()).ok());
    ASSERT_TRUE(c.send_all(request, soon()).ok() && acceptor.progress().ok());
    ASSERT_TRUE(c.receive_all(challenge, soon()).ok() && b.send_all(challenge, soon()).ok());
    ASSERT_TRUE(connector.progress().ok() && b.receive_all(proof, soon()).ok());
    ASSERT_TRUE(c.send_all(proof, soon()).ok() && acceptor.progress().ok() && acceptor.done());
    EXPECT_EQ(play(request, proof), Code::kUnauthenticated) << "recorded";
    EXPECT_EQ(play(request, std::span(challenge).last(32)), Code::kUnauthenticated) << "reflected";
    Bytes changed = request;
    changed[6] = std::byte{0};  // Plain instead of encrypted.
    EXPECT_EQ(play(changed, proof), Code::kUnauthenticated) << "downgraded";
    changed = request;
    changed[40] ^= static_cast<std::byte>(1 + random_() % 255);  // The epoch.
    EXPECT_EQ(play(changed, proof), Code::kUnauthenticated) << "another epoch";
  }
}

}  // namespace
}  // namespace horo::net
