#include "horo/transport/tcp/link.h"

#include <algorithm>
#include <utility>

#include "horo/base/text.h"

namespace horo::transport::tcp {

Link::Link(Common& common, int peer, size_t streams)
    : common_(common), peer_(peer), spread_{common.chunk, streams}, streams_(streams) {
  abandon();
}

Result<std::unique_ptr<Link>> Link::create(Common& common, int peer, std::vector<Wire> wires) {
  using net::RecordCipher;
  std::unique_ptr<Link> link(new Link(common, peer, wires.size()));
  for (size_t i = 0; i < wires.size(); ++i) {
    Stream& stream = link->streams_[i];
    stream.socket = std::move(wires[i].socket);
    if (!wires[i].keys) continue;
    auto& [protection, sending, receiving] = *wires[i].keys;
    HORO_ASSIGN(auto sealing, RecordCipher::create(RecordCipher::Role::kSeal, protection, std::move(sending)));
    HORO_ASSIGN(auto opening, RecordCipher::create(RecordCipher::Role::kOpen, protection, std::move(receiving)));
    stream.out.encrypt(std::move(sealing));
    stream.in.encrypt(std::move(opening));
    stream.encrypted = true;
  }
  return link;
}

void Link::begin() {
  sent_before_ = received_before_ = 0;
  peer_knows_ = false;
  for (Stream& stream : streams_) stream.parked = false;
}

void Link::send(std::span<const std::byte> data) {
  sends_.push_back({data});
  moved_since_look = true;
}

void Link::receive(size_t bytes, const Placement& placement) {
  receives_.push_back({bytes, placement});
  for (Stream& stream : streams_) stream.parked = false;
  moved_since_look = true;
}

Status Link::progress(bool& moved) {
  if (!failure_.ok()) return idle() ? Status() : failure_;
  bool here = false;
  Status sent = send_some(here);
  if (idle()) return {};
  bool ended = false;
  for (size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    stream.receive.skip_done(receives_, spread_, i);
    if (wants_bytes(stream)) HORO_TRY(receive_some(stream, here));
    ended = ended || (stream.ended && (needs(stream) || sending()));
  }
  settle();
  if (here) moved = moved_since_look = true;
  // A peer that broke off may have said why: everything that came is read first.
  if (here || idle()) return {};
  if (!sent.ok()) return peer_lost(sent.message());
  if (ended) return peer_lost("the peer ended the stream");
  return {};
}

Status Link::send_some(bool& moved) {
  for (Stream& stream : streams_) {
    if (stream.out.empty()) fill_batch(stream);
    if (stream.out.empty()) continue;
    net::IoResult result = stream.out.flush(stream.socket);
    if (result.is_failed()) return result.status();
    if (result.is_moved()) moved = true;
  }
  return {};
}

void Link::fill_batch(Stream& stream) {
  const auto index = static_cast<size_t>(&stream - streams_.data());
  stream.send.skip_done(sends_, spread_, index);
  while (has_frames(stream) && stream.out.has_room()) {
    std::span<const std::byte> data = sends_[stream.send.message].data;
    net::FrameHeader head = header(FrameType::kData);
    head.sequence = sent_before_ + stream.send.message;
    head.offset = stream.send.frame * spread_.chunk;
    PrefixBytes prefix = encode(Prefix{common_.signature, data.size()});
    data = data.subspan(head.offset);
    stream.out.add(head, prefix, data.first(std::min<uint64_t>(data.size(), spread_.chunk)),
                   common_.checksum && !stream.encrypted);
    stream.send.frame += spread_.streams;
    stream.send.skip_done(sends_, spread_, index);
  }
}

/// On stream 0 refusals come, whatever else is awaited.
bool Link::wants_bytes(const Stream& stream) const {
  return needs(stream) || &stream == streams_.data() || common_.failed;
}

Status Link::receive_some(Stream& stream, bool& moved) {
  HORO_TRY(digest(stream));
  if (stream.ended || !wants_bytes(stream) || (stream.parked && !stream.in.has_space())) return {};
  net::IoResult result =
      stream.in.in_body() ? stream.in.receive_body(stream.socket, common_.bounce) : stream.in.fill(stream.socket);
  if (result.is_would_block()) return {};
  if (result.status().code() == Code::kCorrupt) return broken(Code::kCorrupt, result.status().message());
  if (!result.is_moved()) {
    stream.ended = true;
    return {};
  }
  moved = true;
  return digest(stream);
}

Status Link::digest(Stream& stream) {
  while (true) {
    if (!stream.in.in_body()) {
      HORO_ASSIGN(bool opened, open_frame(stream));
      if (!opened) return {};
    }
    if (!stream.in.take_buffered()) return {};
    HORO_TRY(close_frame(stream));
  }
}

Result<bool> Link::open_frame(Stream& stream) {
  if (!stream.header_read) {
    if (stream.in.buffered() < net::FrameHeader::kBytes) return false;
    auto bytes = stream.in.peek(net::FrameHeader::kBytes).first<net::FrameHeader::kBytes>();
    auto decoded = net::decode_frame(bytes, kMostChunk + kPrefixBytes);
    if (!decoded.ok()) return broken(decoded.status().code(), decoded.status().message());
    stream.header = *decoded;
    stream.header_read = true;
  }
  HORO_ASSIGN(Verdict verdict, judge(stream));
  stream.parked = verdict == Verdict::kPark;
  if (verdict == Verdict::kPark || verdict == Verdict::kNeedsMore) return false;
  stream.header_read = false;
  const net::FrameHeader& header = stream.header;
  if (verdict == Verdict::kSkip) {
    stream.in.consume(net::FrameHeader::kBytes);
    stream.in.start_skip(header.length);
    return true;
  }
  stream.in.consume(kHeadBytes);
  Placement placement = receives_[stream.receive.message].placement;
  placement.into += header.offset;
  if (placement.combine != nullptr) placement.with += header.offset;
  const bool checksum = common_.checksum && !stream.encrypted && (header.flags & kUnchecked) == 0;
  stream.in.start_place(placement, header.length - kPrefixBytes, checksum, header.tag);
  return true;
}

Result<Link::Verdict> Link::judge(Stream& stream) {
  const net::FrameHeader& header = stream.header;
  if (header.epoch != common_.epoch || header.group != common_.group || header.source != static_cast<uint32_t>(peer_)) {
    return broken(Code::kIncompatible,
                  text("a frame of epoch ", header.epoch, ", group ", header.group, ", rank ", header.source,
                       " came where epoch ", common_.epoch, ", group ", common_.group, ", rank ", peer_, " belongs"));
  }
  const bool refusal = header.type == static_cast<uint8_t>(FrameType::kRefusal);
  peer_knows_ |= refusal && header.operation == common_.number;
  if (header.operation < common_.number + (common_.failed ? 1 : 0)) return Verdict::kSkip;
  if (header.operation > common_.number) return Verdict::kPark;
  if (header.type == static_cast<uint8_t>(FrameType::kData)) return judge_data(stream);
  if (refusal) return take_refusal(stream);
  return broken(Code::kCorrupt, text("a frame of unknown type ", static_cast<int>(header.type)));
}

Result<Link::Verdict> Link::judge_data(Stream& stream) {
  const net::FrameHeader& header = stream.header;
  if (header.length < kPrefixBytes) return broken(Code::kCorrupt, text("a data frame of ", header.length, " bytes"));
  if (stream.in.buffered() < kHeadBytes) return Verdict::kNeedsMore;
  auto bytes = stream.in.peek(kHeadBytes).last<kPrefixBytes>();
  auto decoded = decode_prefix(bytes, header);
  if (!decoded.ok()) return broken(Code::kCorrupt, decoded.status().message());
  const Prefix& prefix = *decoded;
  if (prefix.signature != common_.signature) {
    return mismatch(text("rank ", common_.rank, " runs ", common_.signature.beside(prefix.signature), ", rank ", peer_,
                         " runs ", prefix.signature.beside(common_.signature)));
  }
  if (header.sequence >= received_before_ + receives_.size()) return Verdict::kPark;
  const uint64_t length = header.length - kPrefixBytes;
  const uint64_t offset = stream.receive.frame * spread_.chunk;
  const bool in_turn = header.sequence == received_before_ + stream.receive.message;
  const uint64_t expected = needs(stream) ? receives_[stream.receive.message].size : 0;
  if (in_turn && prefix.total != expected) {
    return mismatch(
        text("rank ", common_.rank, " expects ", expected, " bytes from rank ", peer_, ", which sent ", prefix.total));
  }
  if (!in_turn || header.offset != offset || length != std::min(spread_.chunk, expected - offset)) {
    return broken(Code::kCorrupt,
                  text("message ", header.sequence, ", bytes ", header.offset, " to ", header.offset + length,
                       " came where message ", received_before_ + stream.receive.message, " from byte ", offset,
                       " on is due: the chunk must be equal on both"));
  }
  return Verdict::kPlace;
}

Result<Link::Verdict> Link::take_refusal(Stream& stream) {
  const net::FrameHeader header = stream.header;
  if (header.length > kMostRefusal) return broken(Code::kCorrupt, text("a refusal of ", header.length, " bytes"));
  const size_t whole = net::FrameHeader::kBytes + header.length;
  if (stream.in.buffered() < whole) return Verdict::kNeedsMore;
  auto payload = stream.in.peek(whole).subspan(net::FrameHeader::kBytes);
  stream.in.consume(whole);
  stream.header_read = false;
  if (Status status = net::check_payload(header, payload); !status.ok()) return broken(status.code(), status.message());
  common_.refused_by_peer = true;
  return decode_refusal(payload).with_operation(common_.number);
}

Status Link::close_frame(Stream& stream) {
  const Inbound::Outcome outcome = stream.in.finish();
  if (!outcome.placed) return {};
  const net::FrameHeader& header = stream.header;
  if (outcome.checked && outcome.crc != header.payload_crc) {
    return Status(Code::kCorrupt,
                  text("bytes from rank ", peer_, " to rank ", common_.rank, " were damaged under way in operation ",
                       header.operation, ", message ", header.sequence, " at offset ", header.offset, ": checksum ",
                       outcome.crc, ", the frame states ", header.payload_crc))
        .with_operation(header.operation);
  }
  stream.receive.frame += spread_.streams;
  stream.receive.skip_done(receives_, spread_, static_cast<size_t>(&stream - streams_.data()));
  return {};
}

void Link::settle() {
  auto sent = [&](Stream& stream) {
    stream.send.skip_done(sends_, spread_, static_cast<size_t>(&stream - streams_.data()));
    return (stream.out.empty() || stream.out.is_left_over()) && !has_frames(stream);
  };
  if (sending() && std::all_of(streams_.begin(), streams_.end(), sent)) {
    sent_before_ += sends_.size();
    sends_.clear();
    for (size_t i = 0; i < streams_.size(); ++i) streams_[i].send = {0, i};
  }
  if (receiving() && std::none_of(streams_.begin(), streams_.end(), [&](Stream& stream) { return needs(stream); })) {
    received_before_ += receives_.size();
    receives_.clear();
    for (size_t i = 0; i < streams_.size(); ++i) streams_[i].receive = {0, i};
  }
}

Status Link::listen() {
  bool moved = false;
  if (!failure_.ok()) return {};
  Status status = receive_some(streams_[0], moved);
  // A wire that broke where nothing is expected is told when something is.
  return status.code() == Code::kMismatch || common_.refused_by_peer ? status : Status();
}

void Link::abandon() {
  sends_.clear();
  receives_.clear();
  for (size_t i = 0; i < streams_.size(); ++i) {
    streams_[i].out.keep_begun();
    streams_[i].in.forget_destination();
    streams_[i].send = streams_[i].receive = {0, i};
  }
}

void Link::refuse(const Status& why) {
  if (!failure_.ok()) return;
  std::string payload = encode_refusal(why);
  streams_[0].out.add_copied(header(FrameType::kRefusal), std::as_bytes(std::span(payload)));
}

bool Link::flush(bool& moved) {
  // A failure shows when the peer is needed next.
  if (!failure_.ok() || !send_some(moved).ok()) return true;
  bool empty = true;
  for (Stream& stream : streams_) {
    if (!receive_some(stream, moved).ok() || stream.ended) return true;
    if (peer_knows_) stream.out.leave_over();
    empty = empty && (stream.out.empty() || stream.out.is_left_over());
  }
  return empty;
}

void Link::watch(std::vector<net::PollItem>& items) const {
  if (!failure_.ok()) return;
  for (const Stream& stream : streams_) {
    const bool full = stream.parked && !stream.in.has_space();
    const bool read = wants_bytes(stream) && !stream.ended && !full;
    const bool write = !stream.out.empty() || has_frames(stream);
    if (read || write) items.push_back({stream.socket.fd(), net::interest(read, write)});
  }
}

net::FrameHeader Link::header(FrameType type) const {
  net::FrameHeader header;
  header.type = static_cast<uint8_t>(type);
  header.epoch = common_.epoch;
  header.operation = common_.number;
  header.group = common_.group;
  header.source = static_cast<uint32_t>(common_.rank);
  return header;
}

Status Link::mismatch(const std::string& differ) const {
  return Status(Code::kMismatch, text("the ranks disagree about operation ", common_.number, ": ", differ,
                                      "; call the same operations in the same order on all ranks"))
      .with_operation(common_.number);
}

/// The stream has lost its place, or was never ours: nothing on it can be believed any more.
Status Link::broken(Code code, const std::string& why) {
  failure_ = Status(code, text("the stream from rank ", peer_, " to rank ", common_.rank, " in operation ",
                               common_.number, ": ", why))
                 .with_operation(common_.number);
  return failure_;
}

Status Link::peer_lost(const std::string& why) {
  failure_ = Status(Code::kPeerLost, text("the wire from rank ", common_.rank, " to rank ", peer_,
                                          " ended in operation ", common_.number, ": ", why))
                 .with_lost({peer_})
                 .with_operation(common_.number);
  return failure_;
}

}  // namespace horo::transport::tcp
