#include "horo/transport/inproc/space.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

namespace horo::transport::inproc {

namespace {

std::byte* aligned_memory(size_t bytes) { return new (std::align_val_t{4096}) std::byte[bytes]; }

}  // namespace

Fabric::Fabric(int size, size_t segment_bytes)
    : size_(size),
      segment_bytes_(segment_bytes),
      page_(aligned_memory(ControlPage::bytes(size))),
      lives_(static_cast<size_t>(size)),
      process_(getpid(), reinterpret_cast<uintptr_t>(&proof_), proof_) {
  std::memset(page_.get(), 0, ControlPage::bytes(size));
  for (int rank = 0; rank < size; ++rank) segments_.emplace_back(aligned_memory(segment_bytes));
}

Fabric::~Fabric() = default;

Space Fabric::space(int rank, size_t staging_bytes) {
  Space space;
  space.transport_name = "inproc";
  space.rank = rank;
  space.size = size_;
  space.names.resize(static_cast<size_t>(size_));
  std::iota(space.names.begin(), space.names.end(), 0);
  space.page = ControlPage(page_.get(), size_);
  space.own_buffers = this;
  space.own = segment(rank).first(staging_bytes);
  const bool readable = process_.try_to_read() == 0;
  for (int member = 0; member < size_; ++member) {
    space.segments.push_back(segment(member));
    space.buffers.push_back(segment(member).subspan(staging_bytes));
    space.areas.push_back(segment(member).data());
    space.lives.push_back(member == rank ? nullptr : &lives_[static_cast<size_t>(member)]);
    if (readable) space.processes.push_back(member == rank ? nullptr : &process_);
  }
  return space;
}

bool Fabric::shows(const std::byte* memory, size_t bytes) const {
  return std::any_of(segments_.begin(), segments_.end(), [&](const Memory& one) {
    return holds({one.get(), segment_bytes_}, memory, bytes);
  });
}

}  // namespace horo::transport::inproc
