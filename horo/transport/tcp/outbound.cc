#include "horo/transport/tcp/outbound.h"

#include <algorithm>
#include <cstring>

#include "horo/kernel/reduce.h"

namespace horo::transport::tcp {

bool Outbound::has_room() const {
  if (empty()) return true;
  return !begun_ && bytes_ < kEnough && pieces_.size() + 2 <= net::kMostBuffers &&
         staging_.size() + kHeadBytes + kSmall <= staging_.capacity();
}

/// Room in the staging memory, as part of the batch.
std::byte* Outbound::stage(size_t bytes) {
  if (pieces_.empty()) staging_.reserve(kStaging);
  size_t at = staging_.size();
  staging_.resize(at + bytes);
  std::byte* place = staging_.data() + at;
  if (!pieces_.empty() && pieces_.back().data() + pieces_.back().size() == place) {
    pieces_.back() = {pieces_.back().data(), pieces_.back().size() + bytes};
  } else {
    pieces_.emplace_back(place, bytes);
  }
  bytes_ += bytes;
  return place;
}

void Outbound::add(net::FrameHeader header, const PrefixBytes& prefix, std::span<const std::byte> data, bool checksum) {
  std::byte* head = stage(kHeadBytes);
  header.type = static_cast<uint8_t>(FrameType::kData);
  header.flags = checksum ? 0 : kUnchecked;
  header.tag = kernel::crc32c(0, prefix);
  header.length = static_cast<uint32_t>(kPrefixBytes + data.size());
  header.payload_crc = checksum ? header.tag : 0;
  if (data.size() <= kSmall) {
    std::byte* copy = stage(data.size());
    if (checksum) {
      header.payload_crc = kernel::copy_crc32c(copy, data.data(), data.size(), header.tag);
    } else {
      kernel::copy(copy, data.data(), data.size());
    }
  } else {
    if (checksum) header.payload_crc = kernel::crc32c(header.tag, data);
    pieces_.push_back(data);
    bytes_ += data.size();
  }
  net::FrameBytes encoded = net::encode(header);
  std::memcpy(head, encoded.data(), encoded.size());
  std::memcpy(head + encoded.size(), prefix.data(), prefix.size());
}

void Outbound::add_copied(net::FrameHeader header, std::span<const std::byte> payload) {
  net::describe_payload(header, payload);
  net::FrameBytes encoded = net::encode(header);
  std::vector<std::byte> all;
  for (size_t i = first_; i < pieces_.size(); ++i) all.insert(all.end(), pieces_[i].begin(), pieces_[i].end());
  all.insert(all.end(), encoded.begin(), encoded.end());
  all.insert(all.end(), payload.begin(), payload.end());
  staging_ = std::move(all);
  pieces_.assign(1, staging_);
  first_ = 0;
  bytes_ = staging_.size();
  begun_ = true;  // Not to be dropped, and nothing is added.
  left_over_ = false;
}

net::IoResult Outbound::flush(const net::Socket& socket) {
  if (cipher_) return flush_sealed(socket);
  auto rest = std::span<const std::span<const std::byte>>(pieces_).subspan(first_);
  net::IoResult result = rest.size() == 1 ? socket.send(rest[0]) : socket.send(rest);
  advance(result.bytes());
  if (first_ == pieces_.size()) all_sent();
  return result;
}

/// So many bytes of the batch are under way.
void Outbound::advance(size_t bytes) {
  if (bytes > 0) begun_ = true;
  while (bytes > 0 && bytes >= pieces_[first_].size()) bytes -= pieces_[first_++].size();
  if (bytes > 0) pieces_[first_] = pieces_[first_].subspan(bytes);
}

void Outbound::all_sent() {
  pieces_.clear();
  staging_.clear();
  first_ = bytes_ = 0;
  begun_ = left_over_ = false;
}

Status Outbound::seal_some() {
  while (first_ < pieces_.size() && sealed_.size() < kSealAtOnce) {
    const auto part = pieces_[first_].first(std::min(pieces_[first_].size(), kRecord));
    HORO_TRY(cipher_->seal(std::span(&part, 1), sealed_));
    advance(part.size());
  }
  return {};
}

net::IoResult Outbound::flush_sealed(const net::Socket& socket) {
  if (sealed_.empty()) {
    if (Status status = seal_some(); !status.ok()) return net::IoResult::failed(status);
  }
  net::IoResult result = socket.send(std::span(sealed_).subspan(sent_));
  sent_ += result.bytes();
  if (sent_ < sealed_.size()) return result;
  sealed_.clear();
  sent_ = 0;
  if (first_ == pieces_.size()) all_sent();
  return result;
}

void Outbound::keep_begun() {
  std::vector<std::byte> rest;
  if (begun_) {
    for (size_t i = first_; i < pieces_.size(); ++i) rest.insert(rest.end(), pieces_[i].begin(), pieces_[i].end());
  }
  staging_ = std::move(rest);
  pieces_.clear();
  if (!staging_.empty()) pieces_.emplace_back(staging_);
  first_ = 0;
  bytes_ = staging_.size();
  leave_over();
}

}  // namespace horo::transport::tcp
