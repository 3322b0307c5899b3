#include "horo/transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "horo/base/system.h"
#include "horo/base/text.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1; missing in older headers.
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14.
#endif

namespace horo::transport::shm {

namespace {

constexpr unsigned kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW;

Status system_status(const std::string& what) {
  int error = errno;
  return Status(Code::kUnavailable, text(what, ": ", std::strerror(error)));
}

// The kernel would hand out the pages and kill somebody later. Leaves a little for everybody else.
Status check_memory_limit(size_t bytes) {
  constexpr size_t kMargin = size_t{16} << 20;
  auto memory = System().memory();
  if (!memory.ok() || bytes + kMargin <= memory->available()) return {};
  return Status(Code::kUnavailable, text("no memory for ", bytes_text(bytes),
                                         " of staging: ", bytes_text(memory->available()), " of the limit of ",
                                         bytes_text(memory->limit), " is left; lower HORO_STAGING or raise the limit"));
}

Result<Mapping> map(int fd, size_t bytes, int protection) {
  // No reservation: what is not touched costs nothing, and what is touched is checked against the limit first.
  void* memory = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) return system_status(text("cannot map ", bytes_text(bytes), " of shared memory"));
  Mapping mapping(static_cast<std::byte*>(memory), bytes);
  madvise(memory, bytes, MADV_DONTFORK);  // A forked child has no business here; it would keep the pages alive.
  madvise(memory, bytes, MADV_DONTDUMP);
  madvise(memory, bytes, MADV_HUGEPAGE);  // Where the system allows it for shared memory; no matter if not.
  return mapping;
}

}  // namespace

Mapping::~Mapping() {
  if (memory_.data() != nullptr) munmap(memory_.data(), memory_.size());
}

Mapping::Mapping(Mapping&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(memory_, other.memory_);
  return *this;
}

// The mode keeps others from opening the file anew for writing.
bool Segment::open_for_reading() {
  peer_fd_.reset(open(text("/proc/self/fd/", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (peer_fd_ && fchmod(fd_.get(), S_IRUSR) == 0) return true;
  peer_fd_.reset();
  return false;
}

// What peers must not write is given to them for reading only. The seal against writers forbids them the same, but
// forbids the owner to give pages back too: so it is used only where there is no other way.
Result<Segment> Segment::create(const std::string& name, size_t bytes, bool writable_by_peers) {
  Segment segment;
  segment.fd_.reset(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!segment.fd_) return system_status("cannot create shared memory (memfd_create)");
  if (ftruncate(segment.fd_.get(), static_cast<off_t>(bytes)) != 0) {
    return system_status(text("cannot give ", bytes_text(bytes), " of address space to shared memory"));
  }
  // Our own writable mapping must exist before the seal that forbids new ones.
  HORO_ASSIGN(segment.mapping_, map(segment.fd_.get(), bytes, PROT_READ | PROT_WRITE));
  unsigned seals = kFixedSize | F_SEAL_SEAL;
  if (!writable_by_peers && !segment.open_for_reading()) seals |= F_SEAL_FUTURE_WRITE;
  if (fcntl(segment.fd_.get(), F_ADD_SEALS, seals) != 0) {
    return system_status("cannot seal shared memory against writers (Linux 5.1 or later is needed)");
  }
  return segment;
}

Result<Segment> Segment::create_private(const std::string& name, size_t bytes) { return create(name, bytes, false); }

Result<Segment> Segment::create_shared(const std::string& name, size_t bytes) { return create(name, bytes, true); }

Status Segment::populate(size_t begin, size_t bytes) const {
  const size_t page = page_size();
  const size_t first = begin / page * page;
  const size_t last = std::min(memory().size(), (begin + bytes + page - 1) / page * page);
  HORO_TRY(check_memory_limit(last - first));
  std::byte* data = memory().data() + first;
  if (madvise(data, last - first, MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL) {
    return system_status(text("cannot get ", bytes_text(last - first), " of shared memory"));
  }
  for (size_t offset = 0; offset < last - first; offset += page) {
    auto* byte = reinterpret_cast<volatile std::byte*>(data + offset);
    *byte = *byte;
  }
  return {};
}

void Segment::release(size_t begin, size_t bytes) const {
  const size_t page = page_size();
  const size_t first = (begin + page - 1) / page * page;
  const size_t last = std::min(memory().size(), begin + bytes) / page * page;
  if (last <= first) return;
  // Refused by kernels that know no holes, and under the seal against writers: then the pages stay.
  (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                  static_cast<off_t>(last - first));
}

void Segment::withdraw(size_t begin, size_t bytes) const {
  void* memory = mmap(this->memory().data() + begin, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  HORO_CHECK(memory != MAP_FAILED, "cannot take a caller's memory away from peers that may still write it");
  release(begin, bytes);
}

void Segment::set_inherited(size_t begin, size_t bytes, bool inherited) const {
  const size_t page = page_size();
  const size_t first = begin / page * page;
  madvise(memory().data() + first, begin + bytes - first, inherited ? MADV_DOFORK : MADV_DONTFORK);
}

Result<Mapping> map_peer(const net::UniqueFd& fd, size_t bytes, Access access) {
  struct stat file {};
  if (fstat(fd.get(), &file) != 0) return system_status("cannot examine a peer's shared memory");
  int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (static_cast<unsigned>(seals) & kFixedSize) != kFixedSize) {
    return Status(Code::kCorrupt, "a peer passed shared memory that it could shorten; refused");
  }
  if (static_cast<size_t>(file.st_size) != bytes) {
    return Status(Code::kCorrupt,
                  text("a peer passed shared memory of ", file.st_size, " bytes where it announced ", bytes));
  }
  return map(fd.get(), bytes, access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE);
}

}  // namespace horo::transport::shm
