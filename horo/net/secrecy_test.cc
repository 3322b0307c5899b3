// Forward secrecy: somebody who has recorded a connection and gets the job's key later cannot open a single record.
//
// The recorded connection is made by a client of OpenSSL that gives its ephemeral key away. The same computation that
// fails with everything the recorder has (the job's key and the whole transcript) opens the records once that key is
// put in: so it is the exchange, and nothing else, that keeps them closed.
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <optional>

#include "horo/net/channel.h"
#include "horo/net/testing.h"
#include "horo/net/tls.h"

namespace horo::net {
namespace {

using testing::soon;
using Octets = std::vector<unsigned char>;

// ---- RFC 8446, 7.1: the key schedule of TLS 1.3 with SHA-256
// ------------------------------------------------------------

Octets hmac(const Octets& key, const Octets& data) {
  Octets out(32);
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data.data(), data.size(), out.data(), &size);
  return out;
}

Octets digest(const Octets& data) {
  Octets out(32);
  unsigned size = 0;
  EVP_Digest(data.data(), data.size(), out.data(), &size, EVP_sha256(), nullptr);
  return out;
}

Octets expand(const Octets& secret, const std::string& label, const Octets& context, size_t bytes) {
  const std::string full = "tls13 " + label;
  Octets info{0, static_cast<unsigned char>(bytes), static_cast<unsigned char>(full.size())};
  info.insert(info.end(), full.begin(), full.end());
  info.push_back(static_cast<unsigned char>(context.size()));
  info.insert(info.end(), context.begin(), context.end());
  info.push_back(1);  // One block of HKDF-Expand is enough.
  Octets out = hmac(secret, info);
  out.resize(bytes);
  return out;
}

/// What the server's first records are sealed with.
Octets server_secret(const Octets& psk, const Octets& exchanged, const Octets& hellos) {
  const Octets early = hmac(Octets(32, 0), psk);
  const Octets handshake = hmac(expand(early, "derived", digest({}), 32), exchanged);
  return expand(handshake, "s hs traffic", digest(hellos), 32);
}

/// Whether the first sealed record opens with a key made from `secret`.
bool opens(const Octets& record, const Octets& secret) {
  const Octets key = expand(secret, "key", {}, 16), iv = expand(secret, "iv", {}, 12);
  std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)> context(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  Octets plain(record.size());
  int moved = 0;
  Octets tag(record.end() - 16, record.end());
  EVP_DecryptInit_ex(context.get(), EVP_aes_128_gcm(), nullptr, key.data(), iv.data());
  EVP_DecryptUpdate(context.get(), nullptr, &moved, record.data(), 5);
  EVP_DecryptUpdate(context.get(), plain.data(), &moved, record.data() + 5, static_cast<int>(record.size()) - 21);
  EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, 16, tag.data());
  return EVP_DecryptFinal_ex(context.get(), plain.data() + moved, &moved) == 1;
}

// ---- A connection, recorded
// ----------------------------------------------------------------------------------------------

/// Records of TLS, each with its head.
std::vector<Octets> records_of(const Octets& stream) {
  std::vector<Octets> records;
  for (size_t at = 0; at + 5 <= stream.size();) {
    const size_t bytes = 5 + (size_t{stream[at + 3]} << 8 | stream[at + 4]);
    if (at + bytes > stream.size()) break;
    records.emplace_back(stream.begin() + static_cast<ptrdiff_t>(at),
                         stream.begin() + static_cast<ptrdiff_t>(at + bytes));
    at += bytes;
  }
  return records;
}

Octets without_head(const Octets& record) { return {record.begin() + 5, record.end()}; }

/// The 32 bytes of an X25519 share: group 0x001d, length 32.
Octets share_in(const Octets& hello) {
  const unsigned char mark[4] = {0x00, 0x1d, 0x00, 0x20};
  const auto found = std::search(hello.begin(), hello.end(), std::begin(mark), std::end(mark));
  EXPECT_NE(found, hello.end());
  return {found + 4, found + 36};
}

struct Offer {
  std::vector<std::byte> identity;
  Key psk;
};

int offer_psk(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* size, SSL_SESSION** session) {
  auto* offer = static_cast<Offer*>(SSL_get_app_data(ssl));
  const unsigned char suite[2] = {0x13, 0x01};
  const auto secret = offer->psk.secret();
  *session = SSL_SESSION_new();
  SSL_SESSION_set1_master_key(*session, reinterpret_cast<const unsigned char*>(secret.data()), secret.size());
  SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, suite));
  SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
  *id = reinterpret_cast<const unsigned char*>(offer->identity.data());
  *size = offer->identity.size();
  return 1;
}

struct Recording {
  Octets client_hello, server_hello, sealed;  ///< Messages, and the server's first sealed record.
  Octets psk;                                 ///< As anybody can derive it who has the job's key.
  Octets exchanged;                           ///< As only the two ends can compute it.
};

Octets exchanged_by(SSL* ssl) {
  EVP_PKEY *own = nullptr, *peer = nullptr;
  EXPECT_EQ(SSL_get_tmp_key(ssl, &own), 1);
  EXPECT_EQ(SSL_get_peer_tmp_key(ssl, &peer), 1);
  std::unique_ptr<EVP_PKEY_CTX, void (*)(EVP_PKEY_CTX*)> context(EVP_PKEY_CTX_new(own, nullptr), EVP_PKEY_CTX_free);
  Octets secret(32);
  size_t bytes = secret.size();
  EXPECT_EQ(EVP_PKEY_derive_init(context.get()), 1);
  EXPECT_EQ(EVP_PKEY_derive_set_peer(context.get(), peer), 1);
  EXPECT_EQ(EVP_PKEY_derive(context.get(), secret.data(), &bytes), 1);
  EVP_PKEY_free(own);
  EVP_PKEY_free(peer);
  return secret;
}

/// A good connection to horo's own accepting side, with a wiretap in the middle.
Recording record(const Key& job_key) {
  const Identity identity{"job", Purpose::kControl, 4, 1, 0};
  Offer offer{*encode(identity), *derive_psk(job_key, *encode(identity))};
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256");
  SSL_CTX_set1_groups_list(context.get(), "X25519");
  std::unique_ptr<SSL, void (*)(SSL*)> client(SSL_new(context.get()), SSL_free);
  SSL_set_app_data(client.get(), &offer);
  SSL_set_psk_use_session_callback(client.get(), offer_psk);
  BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
  SSL_set_bio(client.get(), in, out);
  SSL_set_connect_state(client.get());

  auto [mine, theirs] = *Socket::pair();
  ChannelOptions options;
  options.hello = local_hello(0, 4);
  auto shared = std::make_shared<const Key>(*job_key.copy());
  Channel server = *Channel::accept(*Tls::create(), std::move(theirs), shared, "job", options);
  Octets said, heard, buffer(1 << 14);
  for (int turn = 0; turn < 4; ++turn) {
    SSL_do_handshake(client.get());
    const int count = BIO_read(out, buffer.data(), static_cast<int>(buffer.size()));
    if (count > 0) {
      said.insert(said.end(), buffer.begin(), buffer.begin() + count);
      EXPECT_TRUE(mine.send_all(std::as_bytes(std::span(buffer).first(static_cast<size_t>(count))), soon()).ok());
    }
    EXPECT_TRUE(server.progress().ok());
    const IoResult got = mine.receive(std::as_writable_bytes(std::span(buffer)));
    if (!got.is_moved()) continue;
    heard.insert(heard.end(), buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(got.bytes()));
    BIO_write(in, buffer.data(), static_cast<int>(got.bytes()));
  }
  EXPECT_EQ(SSL_is_init_finished(client.get()), 1);
  Recording recording;
  recording.client_hello = without_head(records_of(said).at(0));
  for (const Octets& one : records_of(heard)) {
    if (one[0] == 22 && recording.server_hello.empty()) recording.server_hello = without_head(one);
    if (one[0] == 23 && recording.sealed.empty()) recording.sealed = one;
  }
  const auto secret = std::as_bytes(std::span(offer.psk.secret()));
  for (std::byte byte : secret) recording.psk.push_back(static_cast<unsigned char>(byte));
  recording.exchanged = exchanged_by(client.get());
  return recording;
}

TEST(Secrecy, RecordsStayClosedToWhoeverHasTheKeyOfTheJobAndTheTranscript) {
  const Key job_key = *Key::random();
  for (int round = 0; round < 20; ++round) {
    const Recording recorded = record(job_key);
    ASSERT_FALSE(recorded.sealed.empty() || recorded.server_hello.empty());
    Octets hellos = recorded.client_hello;
    hellos.insert(hellos.end(), recorded.server_hello.begin(), recorded.server_hello.end());
    const Octets client_share = share_in(recorded.client_hello), server_share = share_in(recorded.server_hello);
    Octets both = client_share;
    both.insert(both.end(), server_share.begin(), server_share.end());
    // Everything public that could stand where the exchange belongs; the first is the handshake without one.
    for (const Octets& guess : {Octets(32, 0), Octets(), client_share, server_share, both, recorded.psk}) {
      EXPECT_FALSE(opens(recorded.sealed, server_secret(recorded.psk, guess, hellos)));
    }
    EXPECT_TRUE(opens(recorded.sealed, server_secret(recorded.psk, recorded.exchanged, hellos)))
        << "the computation itself is wrong, so the lines above show nothing";
    EXPECT_FALSE(opens(recorded.sealed, server_secret(Octets(32, 1), recorded.exchanged, hellos)))
        << "the exchange alone is not enough either: the key of the job is bound in";
  }
}

TEST(Secrecy, TheExchangeIsFreshForEachConnection) {
  const Key job_key = *Key::random();
  std::vector<Octets> shares;
  for (int round = 0; round < 20; ++round) {
    const Recording recorded = record(job_key);
    shares.push_back(share_in(recorded.server_hello));
    shares.push_back(recorded.exchanged);
  }
  std::sort(shares.begin(), shares.end());
  EXPECT_EQ(std::adjacent_find(shares.begin(), shares.end()), shares.end());
}

}  // namespace
}  // namespace horo::net
