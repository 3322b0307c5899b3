#include "horo/net/channel_state.h"

#include <algorithm>

#include "horo/base/text.h"

namespace horo::net {

IoResult SocketWire::receive(std::span<std::byte> into) {
  if (allowance_ == 0) {
    return IoResult::failed(
        {Code::kUnauthenticated, text("sent more than ", limit_, " bytes without proving the key")});
  }
  into = into.first(std::min(into.size(), allowance_));
  IoResult result = before_.empty() ? socket_.receive(into) : IoResult::moved(std::min(into.size(), before_.size()));
  if (!before_.empty()) {
    auto end = before_.begin() + static_cast<ptrdiff_t>(result.bytes());
    std::copy(before_.begin(), end, into.begin());
    before_.erase(before_.begin(), end);
  }
  if (allowance_ != SIZE_MAX) allowance_ -= result.bytes();
  return result;
}

void Outbox::drop(size_t count) {
  sent_ += count;
  if (sent_ == bytes_.size()) {
    bytes_.clear();
    sent_ = 0;
  } else if (sent_ > bytes_.size() / 2) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(sent_));
    sent_ = 0;
  }
}

Channel::State::State(Socket socket, ChannelOptions chosen, bool is_connector)
    : wire(std::move(socket), chosen.most_unauthenticated, std::move(chosen.received_before)),
      options(std::move(chosen)),
      connector(is_connector),
      deadline(Deadline::after(options.handshake_limit)) {}

Status Channel::State::progress(Time now) {
  if (phase == Phase::kFailed) return failure;
  if (phase != Phase::kReady && deadline.expired(now)) {
    return failed({Code::kTimeout, text(peer(), " did not prove the job's key within ",
                                        std::chrono::duration<double>(options.handshake_limit).count(), " s")});
  }
  if (phase == Phase::kTls) HORO_TRY(step_tls());
  if (phase == Phase::kHello) HORO_TRY(step_hello());
  return flush_some();
}

Status Channel::State::step_tls() {
  IoResult result = tls->handshake();
  if (result.is_would_block()) return {};
  if (!result.is_moved()) {
    const Status& why = result.status();
    if (why.code() != Code::kUnauthenticated) return failed(why.prefixed(peer()));
    return failed({Code::kUnauthenticated, text(peer(), " and ", member_text(options.hello.member),
                                                " do not prove the same key, job, ranks and epoch to each other (",
                                                why.message(), "); start all of them with the same key file")});
  }
  wire.allow_everything();
  phase = Phase::kHello;
  if (connector) outbox.add(encode(options.hello));
  return flush_some();
}

Status Channel::State::step_hello() {
  if (!hello_length) {
    HORO_ASSIGN(bool whole, fill(std::span(head).first(Hello::kPrefixBytes), head_filled));
    if (!whole) return {};
    auto length = decode_hello_prefix(std::span(head).first<Hello::kPrefixBytes>());
    if (!length.ok()) return failed(length.status().prefixed(peer()));
    hello_length = *length;
    body.resize(*hello_length);
  }
  HORO_ASSIGN(bool whole, fill(body, body_filled));
  if (!whole) return {};
  auto decoded = decode_hello_body(body);
  if (!decoded.ok()) return failed(decoded.status().prefixed(peer()));
  theirs = std::move(*decoded);
  head_filled = body_filled = 0;
  body.clear();
  HORO_TRY(connector ? judge_as_connector() : judge_as_acceptor());
  key.reset();
  phase = Phase::kReady;
  return {};
}

Status Channel::State::judge_as_acceptor() {
  Hello answer = options.hello;
  Status verdict;
  auto agreed = agree(options.hello, theirs);
  if (theirs.member != identity.connector || theirs.epoch != identity.epoch) {
    verdict = Status(Code::kUnauthenticated, text(theirs.to_string(), " proved to be ", identity.to_string()));
  } else if (!agreed.ok()) {
    verdict = agreed.status();
  } else {
    version = *agreed;
    if (admit) verdict = admit(identity, theirs);
  }
  answer.verdict = verdict.code();
  answer.reason = verdict.message();
  outbox.add(encode(answer));
  if (verdict.ok()) return flush_some();
  // The refused side should know why; it is told if its socket takes it now.
  Status told = flush_some();
  return failed(told.ok() ? verdict : verdict.prefixed(text("and could not be told: ", told.message())));
}

Status Channel::State::judge_as_connector() {
  if (theirs.verdict != Code::kOk) {
    return failed({theirs.verdict,
                   text(theirs.to_string(), " refused ", member_text(options.hello.member), ": ", theirs.reason)});
  }
  if (theirs.member != identity.acceptor) {
    return failed({Code::kUnauthenticated, text(theirs.to_string(), " proved to be ", member_text(identity.acceptor))});
  }
  auto agreed = agree(options.hello, theirs);
  if (!agreed.ok()) return failed(agreed.status());
  version = *agreed;
  return {};
}

Status Channel::State::flush_some() {
  flush_blocked = false;
  if (phase == Phase::kTls) return {};
  while (outbox.size() > 0) {
    IoResult result = tls->send(outbox.front());
    if (result.is_would_block()) {
      flush_blocked = true;
      return {};
    }
    if (!result.is_moved()) return failed(result.status().prefixed(peer()));
    outbox.drop(result.bytes());
  }
  return {};
}

Result<bool> Channel::State::fill(std::span<std::byte> into, size_t& filled) {
  while (filled < into.size()) {
    IoResult result = tls->receive(into.subspan(filled));
    if (result.is_would_block()) return false;
    if (result.is_end()) return failed({Code::kStopped, text(peer(), " closed the channel")});
    if (!result.is_moved()) return failed(result.status().prefixed(peer()));
    filled += result.bytes();
  }
  return true;
}

Result<std::optional<Message>> Channel::State::receive() {
  if (phase == Phase::kFailed) return failure;
  if (phase != Phase::kReady) return std::optional<Message>();
  if (!header) {
    HORO_ASSIGN(bool whole, fill(head, head_filled));
    if (!whole) return std::optional<Message>();
    auto decoded = decode_frame(head, options.most_message, version);
    if (!decoded.ok()) return failed(decoded.status().prefixed(peer()));
    header = *decoded;
    body.resize(header->length);
  }
  HORO_ASSIGN(bool whole, fill(body, body_filled));
  if (!whole) return std::optional<Message>();
  Status intact = check_payload(*header, body);
  if (!intact.ok()) return failed(intact.prefixed(peer()));
  Message message{*header, std::move(body)};
  header.reset();
  body = {};
  head_filled = body_filled = 0;
  return std::optional<Message>(std::move(message));
}

Status Channel::State::failed(Status why) {
  phase = Phase::kFailed;
  failure = std::move(why);
  return failure;
}

std::string Channel::State::peer() const {
  if (phase == Phase::kReady || !theirs.host.empty()) return theirs.to_string();
  return const_cast<State*>(this)->wire.socket().peer_text();
}

Result<Key> Channel::State::find_key(std::span<const std::byte> encoded) {
  if (encoded.size() > Identity::kMostBytes) return Status(Code::kUnauthenticated, "the identity is too long");
  auto claimed = decode_identity(encoded);
  if (!claimed.ok()) return Status(Code::kUnauthenticated, claimed.status().message());
  HORO_TRY(check_addressed(*claimed, job, options.hello.member));
  identity = std::move(*claimed);
  return derive_psk(*key, encoded);
}

}  // namespace horo::net
