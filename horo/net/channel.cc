#include "horo/net/channel.h"

#include <array>

#include "horo/base/text.h"
#include "horo/net/channel_state.h"
#include "horo/net/codec.h"

namespace horo::net {
namespace {

constexpr uint32_t kDescriptorsMagic = 0x53444648;  // "HFDS"
constexpr size_t kDescriptorsBytes = 8;

}  // namespace

Channel::Channel(std::unique_ptr<State> state) : state_(std::move(state)) {}
Channel::Channel(Channel&&) noexcept = default;
Channel& Channel::operator=(Channel&&) noexcept = default;
Channel::~Channel() = default;

Result<Channel> Channel::connect(std::shared_ptr<const Tls> tls, Socket socket, const Key& key,
                                 const Identity& identity, ChannelOptions options) {
  if (options.hello.member != identity.connector || options.hello.epoch != identity.epoch) {
    return Status(Code::kInvalidArgument, text("the Hello of ", options.hello.to_string(), ", epoch ",
                                               options.hello.epoch, ", does not fit ", identity.to_string()));
  }
  HORO_ASSIGN(auto encoded, encode(identity));
  HORO_ASSIGN(Key psk, derive_psk(key, encoded));
  auto state = std::make_unique<State>(std::move(socket), std::move(options), true);
  state->identity = identity;
  HORO_ASSIGN(state->tls, TlsSession::connect(std::move(tls), state->wire, std::move(encoded), std::move(psk)));
  return Channel(std::move(state));
}

Result<Channel> Channel::accept(std::shared_ptr<const Tls> tls, Socket socket, std::shared_ptr<const Key> key,
                                std::string job, ChannelOptions options, Admit admit) {
  auto state = std::make_unique<State>(std::move(socket), std::move(options), false);
  state->key = std::move(key);
  state->job = std::move(job);
  state->admit = std::move(admit);
  auto find = [raw = state.get()](std::span<const std::byte> encoded) { return raw->find_key(encoded); };
  HORO_ASSIGN(state->tls, TlsSession::accept(std::move(tls), state->wire, std::move(find)));
  return Channel(std::move(state));
}

Status Channel::progress(Time now) { return state_->progress(now); }

bool Channel::ready() const { return state_->phase == State::Phase::kReady; }

Interest Channel::interest() const {
  if (state_->phase == State::Phase::kTls) {
    bool write = state_->tls->wants_write();
    return net::interest(!write, write);
  }
  return net::interest(true, state_->outbox.size() > 0);
}

Deadline Channel::deadline() const { return ready() ? Deadline::never() : state_->deadline; }

int Channel::fd() const { return state_->wire.socket().fd(); }

Status Channel::send(FrameHeader header, std::span<const std::byte> payload) {
  if (state_->phase == State::Phase::kFailed) return state_->failure;
  if (!ready()) return {Code::kInvalidArgument, "a message is sent before the channel is ready"};
  if (payload.size() > state_->options.most_message) {
    return {Code::kInvalidArgument,
            text("a message of ", payload.size(), " bytes exceeds the limit of ", state_->options.most_message)};
  }
  if (state_->outbox.size() + FrameHeader::kBytes + payload.size() > state_->options.most_queued) {
    return {Code::kUnavailable, text(state_->outbox.size(), " bytes wait to be sent to ", state_->peer(),
                                     "; the limit is ", state_->options.most_queued)};
  }
  header.version = state_->version;
  describe_payload(header, payload);
  state_->outbox.add(encode(header));
  state_->outbox.add(payload);
  return {};
}

size_t Channel::queued() const { return state_->outbox.size(); }

Result<std::optional<Message>> Channel::receive() { return state_->receive(); }

void Channel::close() {
  if (state_->phase == State::Phase::kReady) state_->tls->close();
  if (state_->phase != State::Phase::kFailed) {
    static_cast<void>(state_->failed({Code::kStopped, "this side has closed the channel"}));
  }
  state_->wire.socket().close();
}

Status Channel::handshake(Deadline deadline) {
  while (true) {
    HORO_TRY(progress());
    if (ready() && queued() == 0) return {};
    Status waited = wait_ready(fd(), interest(), deadline.earlier(this->deadline()), "the handshake");
    // Its own deadline, when that is the earlier one, is told by progress().
    if (waited.ok() || (waited.code() == Code::kTimeout && !deadline.expired())) continue;
    return waited.prefixed(state_->peer());
  }
}

Status Channel::flush(Deadline deadline) {
  while (true) {
    HORO_TRY(progress());
    if (queued() == 0) return {};
    HORO_TRY(wait_ready(fd(), Interest::kWrite, deadline, "sending"));
  }
}

Result<Message> Channel::receive(Deadline deadline) {
  while (true) {
    HORO_ASSIGN(auto message, receive());
    if (message) return std::move(*message);
    // What is queued may be what the peer waits for before it answers.
    HORO_TRY(progress());
    HORO_TRY(wait_ready(fd(), interest(), deadline.earlier(this->deadline()), "waiting for a message"));
  }
}

Status Channel::send_descriptors(std::span<const int> descriptors, Deadline deadline) {
  if (!ready() || queued() > 0) {
    return {Code::kInvalidArgument, "descriptors are sent on a channel that is ready and has nothing queued"};
  }
  Writer out(kDescriptorsBytes);
  out.u32(kDescriptorsMagic);
  out.count(descriptors.size());
  while (true) {
    IoResult result = socket().send_descriptors(out.data(), descriptors);
    if (result.is_moved()) return socket().send_all(out.data().subspan(result.bytes()), deadline);
    if (!result.is_would_block()) return result.status();
    HORO_TRY(wait_ready(fd(), Interest::kWrite, deadline, "sending descriptors"));
  }
}

Result<std::vector<UniqueFd>> Channel::receive_descriptors(size_t count, Deadline deadline) {
  if (!ready() || state_->tls->has_pending()) {
    return Status(Code::kInvalidArgument, "descriptors are received when a channel has nothing else to be read");
  }
  std::array<std::byte, kDescriptorsBytes> bytes;
  std::vector<UniqueFd> descriptors;
  while (true) {
    IoResult result = socket().receive_descriptors(bytes, count, descriptors);
    if (result.is_end()) return state_->failed({Code::kPeerLost, text(state_->peer(), " sent no descriptors")});
    if (result.is_failed()) return state_->failed(result.status().prefixed(state_->peer()));
    if (result.is_moved()) {
      HORO_TRY(socket().receive_all(std::span(bytes).subspan(result.bytes()), deadline));
      break;
    }
    HORO_TRY(wait_ready(fd(), Interest::kRead, deadline, "receiving descriptors"));
  }
  Reader in(bytes, "a message with descriptors");
  if (in.u32() != kDescriptorsMagic) in.fail("it does not begin with HFDS");
  if (in.u32() != count) in.fail("it announces another number of them");
  Status intact = in.finish();
  if (!intact.ok()) return state_->failed(intact.prefixed(state_->peer()));
  return descriptors;
}

Result<Key> Channel::export_key(std::string_view label, std::span<const std::byte> context) const {
  if (!ready()) return Status(Code::kInvalidArgument, "a key is exported before the channel is ready");
  return state_->tls->export_key(label, context);
}

const Identity& Channel::identity() const { return state_->identity; }
const Hello& Channel::mine() const { return state_->options.hello; }
const Hello& Channel::theirs() const { return state_->theirs; }
uint16_t Channel::version() const { return state_->version; }
bool Channel::is_connector() const { return state_->connector; }
const Socket& Channel::socket() const { return state_->wire.socket(); }

}  // namespace horo::net
