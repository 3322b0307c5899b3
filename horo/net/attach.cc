#include "horo/net/attach.h"

#include <algorithm>

#include "horo/base/text.h"
#include "horo/net/codec.h"

namespace horo::net {
namespace {

constexpr uint16_t kAttachVersion = 1;
constexpr size_t kMacAt = AttachRequest::kBytes - sizeof(Mac);
constexpr std::string_view kRequestLabel = "horo attach request";
constexpr std::string_view kChallengeLabel = "horo attach challenge";
constexpr std::string_view kProofLabel = "horo attach proof";
constexpr std::string_view kFromConnectorLabel = "horo records of the connector";
constexpr std::string_view kFromAcceptorLabel = "horo records of the acceptor";
constexpr size_t kChallengeBytes = sizeof(Nonce) + sizeof(Mac);

std::span<const std::byte> bytes_of(std::string_view label) { return std::as_bytes(std::span(label)); }

template <class Array>
Array array_from(std::span<const std::byte> bytes) {
  Array array{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), array.size()), array.begin());
  return array;
}

Mac request_mac(const AttachKeys& keys, std::span<const std::byte> unsigned_part) {
  return keys.connector_key.mac({bytes_of(kRequestLabel), unsigned_part});
}

Mac challenge_mac(const AttachKeys& keys, std::span<const std::byte> request, std::span<const std::byte> nonce) {
  return keys.acceptor_key.mac({bytes_of(kChallengeLabel), request, nonce});
}

Mac proof_mac(const AttachKeys& keys, std::span<const std::byte> request, std::span<const std::byte> nonce) {
  return keys.connector_key.mac({bytes_of(kProofLabel), request, nonce});
}

std::vector<std::byte> listed(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

/// Of the connector's end, or of the acceptor's; none for a plain stream. `request` is the encoded one.
Result<std::optional<StreamKeys>> stream_keys(const AttachKeys& keys, Protection protection, bool connector,
                                              std::span<const std::byte> request, std::span<const std::byte> nonce) {
  if (protection == Protection::kChecksum) return std::optional<StreamKeys>();
  std::vector<std::byte> context = listed(request);
  context.insert(context.end(), nonce.begin(), nonce.end());
  HORO_ASSIGN(Key from_connector, keys.record_key.derive(kFromConnectorLabel, context));
  HORO_ASSIGN(Key from_acceptor, keys.record_key.derive(kFromAcceptorLabel, context));
  if (!connector) std::swap(from_connector, from_acceptor);
  return std::optional<StreamKeys>(StreamKeys{protection, std::move(from_connector), std::move(from_acceptor)});
}

Status too_slow(std::string_view what) {
  return {Code::kTimeout, text("attaching ", what, " took longer than its limit")};
}

}  // namespace

Result<AttachKeys> attach_keys(const Channel& channel, Attaching direction) {
  Member mine = channel.mine().member;
  Member theirs = channel.theirs().member;
  bool outgoing = direction == Attaching::kOutgoing;
  Member connector = outgoing ? mine : theirs;
  Member acceptor = outgoing ? theirs : mine;
  Writer context(16);
  context.u64(connector);
  context.u64(acceptor);
  HORO_ASSIGN(Key session, channel.export_key("attach session", context.data()));
  HORO_ASSIGN(Key connector_key, channel.export_key("attach connector", context.data()));
  HORO_ASSIGN(Key acceptor_key, channel.export_key("attach acceptor", context.data()));
  HORO_ASSIGN(Key record_key, channel.export_key("attach records", context.data()));
  return AttachKeys{array_from<SessionId>(session.secret()),
                    connector,
                    acceptor,
                    std::move(connector_key),
                    std::move(acceptor_key),
                    std::move(record_key)};
}

std::string AttachRequest::to_string() const {
  return text("stream ", stream, " of group ", group, ", epoch ", epoch, ", ", member_text(connector), " to ",
              member_text(acceptor));
}

std::array<std::byte, AttachRequest::kBytes> encode(const AttachRequest& request, const AttachKeys& keys) {
  Writer out(AttachRequest::kBytes);
  out.u32(AttachRequest::kMagic);
  out.u16(kAttachVersion);
  out.u8(static_cast<uint8_t>(request.protection));
  out.u8(0);
  out.raw(request.session);
  out.u64(request.connector);
  out.u64(request.acceptor);
  out.u64(request.epoch);
  out.u32(request.group);
  out.u32(request.stream);
  out.raw(request.nonce);
  out.raw(request_mac(keys, out.data()));
  HORO_CHECK(out.ok() && out.size() == AttachRequest::kBytes, "an attach request has one size");
  return array_from<std::array<std::byte, AttachRequest::kBytes>>(out.data());
}

Result<AttachRequest> decode_attach_request(std::span<const std::byte, AttachRequest::kBytes> bytes) {
  Reader in(bytes, "an attach request");
  if (in.u32() != AttachRequest::kMagic) in.fail("it does not begin with HATT");
  uint16_t version = in.u16();
  AttachRequest request;
  const uint8_t protection = in.u8();
  if (in.ok() && (version != kAttachVersion || protection > kHighestProtection)) {
    return Status(Code::kIncompatible,
                  text("an attach request of version ", version, " with protection ", int{protection},
                       " came where version ", kAttachVersion, " with protection 0 to ", int{kHighestProtection},
                       " is spoken; install the same version of horo on all hosts"));
  }
  request.protection = static_cast<Protection>(protection);
  if (in.u8() != 0) in.fail("a reserved byte is not zero");
  request.session = array_from<SessionId>(in.raw(sizeof(SessionId)));
  request.connector = in.u64();
  request.acceptor = in.u64();
  request.epoch = in.u64();
  request.group = in.u32();
  request.stream = in.u32();
  request.nonce = array_from<Nonce>(in.raw(sizeof(Nonce)));
  in.raw(sizeof(Mac));
  HORO_TRY(in.finish());
  return request;
}

Status check_request(std::span<const std::byte, AttachRequest::kBytes> bytes, const AttachRequest& request,
                     const AttachKeys& keys) {
  if (!equal(request_mac(keys, bytes.first(kMacAt)), array_from<Mac>(bytes.subspan(kMacAt)))) {
    return {Code::kUnauthenticated, text(request.to_string(), ": the request was not made with the channel's key")};
  }
  if (request.connector == keys.connector && request.acceptor == keys.acceptor) return {};
  return {Code::kUnauthenticated, text(request.to_string(), ": the channel is between ", member_text(keys.connector),
                                       " and ", member_text(keys.acceptor))};
}

Result<bool> AttachExchange::move() {
  while (sent < out.size()) {
    IoResult result = socket.send(std::span(out).subspan(sent));
    if (result.is_would_block()) return false;
    if (!result.is_moved()) return result.status();
    sent += result.bytes();
  }
  while (filled < in.size()) {
    IoResult result = socket.receive(std::span(in).subspan(filled));
    if (result.is_would_block()) return false;
    if (result.is_end()) return Status(Code::kPeerLost, text(socket.peer_text(), " ended a stream while it attached"));
    if (!result.is_moved()) return result.status();
    filled += result.bytes();
  }
  return true;
}

void AttachExchange::next(std::vector<std::byte> send, size_t receive) {
  out = std::move(send);
  in.assign(receive, std::byte{0});
  sent = filled = 0;
}

AttachConnector::AttachConnector(Socket socket, const AttachKeys& keys, AttachRequest about, Deadline deadline)
    : keys_(keys), request_(about), deadline_(deadline) {
  request_.session = keys.session;
  request_.connector = keys.connector;
  request_.acceptor = keys.acceptor;
  fill_random(request_.nonce);
  encoded_ = listed(encode(request_, keys));
  exchange_.socket = std::move(socket);
  exchange_.next(encoded_, kChallengeBytes);
}

Status AttachConnector::progress(Time now) {
  if (done_) return {};
  if (deadline_.expired(now)) return too_slow(request_.to_string());
  HORO_ASSIGN(bool moved, exchange_.move());
  if (!moved) return {};
  if (!proof_sent_) {
    auto answer = std::span<const std::byte>(exchange_.in);
    auto nonce = listed(answer.first(sizeof(Nonce)));
    if (!equal(challenge_mac(keys_, encoded_, nonce), array_from<Mac>(answer.subspan(sizeof(Nonce))))) {
      return {Code::kUnauthenticated,
              text(request_.to_string(), ": ", exchange_.socket.peer_text(), " does not hold the channel's key")};
    }
    HORO_ASSIGN(stream_keys_, stream_keys(keys_, request_.protection, true, encoded_, nonce));
    exchange_.next(listed(proof_mac(keys_, encoded_, nonce)), 0);
    proof_sent_ = true;
    return progress(now);
  }
  done_ = true;
  return {};
}

Result<AttachedStream> attach(const Address& to, const AttachKeys& keys, const AttachRequest& about, Deadline deadline,
                              const SocketOptions& options) {
  HORO_ASSIGN(Socket socket, Socket::connect(to, deadline, options));
  AttachConnector connector(std::move(socket), keys, about, deadline);
  while (true) {
    HORO_TRY(connector.progress());
    if (connector.done()) return connector.take();
    HORO_TRY(wait_ready(connector.fd(), connector.interest(), deadline, "attaching a stream"));
  }
}

void AttachSessions::add(AttachKeys keys) { sessions_.insert_or_assign(keys.session, std::move(keys)); }

void AttachSessions::remove(const SessionId& session) { sessions_.erase(session); }

const AttachKeys* AttachSessions::find(const SessionId& session) const {
  auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : &found->second;
}

AttachAcceptor::AttachAcceptor(Socket socket, const AttachSessions& sessions, AdmitStream admit, Deadline deadline,
                               std::span<const std::byte> received_before)
    : sessions_(&sessions), admit_(std::move(admit)), deadline_(deadline) {
  HORO_CHECK(received_before.size() <= AttachRequest::kBytes, "more was read than a request");
  exchange_.socket = std::move(socket);
  exchange_.next({}, AttachRequest::kBytes);
  std::copy(received_before.begin(), received_before.end(), exchange_.in.begin());
  exchange_.filled = received_before.size();
}

Status AttachAcceptor::progress(Time now) {
  if (done_) return {};
  if (deadline_.expired(now)) return too_slow(text("a stream of ", exchange_.socket.peer_text()));
  HORO_ASSIGN(bool moved, exchange_.move());
  if (!moved) return {};
  if (challenged_) return take_proof();
  HORO_TRY(take_request());
  return progress(now);
}

Status AttachAcceptor::take_request() {
  encoded_ = exchange_.in;
  auto bytes = std::span<const std::byte>(encoded_).first<AttachRequest::kBytes>();
  HORO_ASSIGN(request_, decode_attach_request(bytes));
  const AttachKeys* keys = sessions_->find(request_.session);
  if (keys == nullptr) {
    return {Code::kUnauthenticated, text(request_.to_string(), ": there is no such channel here, or no longer")};
  }
  HORO_TRY(check_request(bytes, request_, *keys));
  fill_random(nonce_);
  auto challenge = listed(nonce_);
  Mac mac = challenge_mac(*keys, encoded_, nonce_);
  challenge.insert(challenge.end(), mac.begin(), mac.end());
  exchange_.next(std::move(challenge), sizeof(Mac));
  challenged_ = true;
  return {};
}

Status AttachAcceptor::take_proof() {
  const AttachKeys* keys = sessions_->find(request_.session);
  if (keys == nullptr || !equal(proof_mac(*keys, encoded_, nonce_), array_from<Mac>(exchange_.in))) {
    return {Code::kUnauthenticated, text(request_.to_string(),
                                         ": the challenge was not answered with the channel's "
                                         "key; this may be a recorded connection played back")};
  }
  if (admit_) HORO_TRY(admit_(request_));
  HORO_ASSIGN(stream_keys_, stream_keys(*keys, request_.protection, false, encoded_, nonce_));
  done_ = true;
  return {};
}

}  // namespace horo::net
