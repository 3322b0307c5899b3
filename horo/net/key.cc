#include "horo/net/key.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "horo/base/text.h"
#include "horo/net/fd.h"
#include "horo/net/system_error.h"

namespace horo::net {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr std::string_view kExtractSalt = "horo key derivation 1";

const unsigned char* plain(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

Mac hmac(std::span<const std::byte> key, std::span<const std::byte> data) {
  Mac mac;
  unsigned int size = mac.size();
  auto* out = reinterpret_cast<unsigned char*>(mac.data());
  bool done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), plain(data), data.size(), out, &size);
  HORO_CHECK(done && size == mac.size(), "HMAC-SHA-256 of memory cannot fail");
  return mac;
}

/// Fills `into` and wants the end of the file after it.
Status read_exactly(int fd, std::span<std::byte> into, std::string_view what) {
  size_t got = 0;
  std::byte extra{};
  while (true) {
    bool full = got == into.size();
    ssize_t count = full ? ::read(fd, &extra, 1) : ::read(fd, into.data() + got, into.size() - got);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(text("reading ", what), errno);
    if (count == 0 && full) return {};
    if (count == 0 || full) {
      return {Code::kInvalidArgument, text(what, " has ", full ? "more" : "fewer", " than ", into.size(), " bytes")};
    }
    got += static_cast<size_t>(count);
  }
}

Status check_owner(int fd, const std::string& path) {
  struct stat found {};
  if (fstat(fd, &found) != 0) return system_error(text("looking at key file ", path), errno);
  if (!S_ISREG(found.st_mode)) return {Code::kInvalidArgument, text("key file ", path, " is not a regular file")};
  if (found.st_uid != geteuid()) {
    return {Code::kInvalidArgument, text("key file ", path, " belongs to user ", found.st_uid, ", not to ", geteuid(),
                                         ", who runs this; chown it")};
  }
  if ((found.st_mode & 077) == 0) return {};
  return {Code::kInvalidArgument, text("key file ", path,
                                       " can be used by others; chmod 600 it, and make a new key if "
                                       "anybody else may have read it")};
}

}  // namespace

void Key::Unmap::operator()(std::byte* page) const {
  OPENSSL_cleanse(page, kBytes);
  munmap(page, kPageBytes);
}

Result<Key> Key::blank() {
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return system_error("mapping a page for a key", errno);
  // Best effort: where a system does not know these (gVisor), the key is as safe as any other memory.
  madvise(page, kPageBytes, MADV_DONTDUMP);
  madvise(page, kPageBytes, MADV_WIPEONFORK);
  return Key(Page(static_cast<std::byte*>(page)));
}

Result<Key> Key::none() { return blank(); }

Result<Key> Key::random() {
  HORO_ASSIGN(Key key, blank());
  if (RAND_priv_bytes(reinterpret_cast<unsigned char*>(key.page_.get()), kBytes) != 1) {
    return Status(Code::kUnavailable, "the system's random generator does not work: no key can be made");
  }
  return key;
}

Result<Key> Key::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() != kBytes) {
    return Status(Code::kInvalidArgument, text("a key has ", kBytes, " bytes, not ", bytes.size()));
  }
  HORO_ASSIGN(Key key, blank());
  std::copy(bytes.begin(), bytes.end(), key.page_.get());
  if (key.is_none()) return Status(Code::kInvalidArgument, "a key of zeros is no secret; make a random one");
  return key;
}

Result<Key> Key::from_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return system_error(text("opening key file ", path), errno);
  HORO_TRY(check_owner(fd.get(), path));
  HORO_ASSIGN(Key key, blank());
  HORO_TRY(read_exactly(fd.get(), {key.page_.get(), kBytes}, text("key file ", path)));
  return from_bytes(key.secret());
}

Result<Key> Key::from_fd(int fd) {
  UniqueFd owner(fd);
  HORO_ASSIGN(Key key, blank());
  HORO_TRY(read_exactly(fd, {key.page_.get(), kBytes}, text("the key on descriptor ", fd)));
  return from_bytes(key.secret());
}

Status Key::save(const std::string& path) const {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return system_error(text("creating key file ", path), errno);
  auto bytes = secret();
  if (::write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())) return {};
  Status why = system_error(text("writing key file ", path), errno);
  ::unlink(path.c_str());
  return why;
}

Result<Key> Key::copy() const {
  HORO_ASSIGN(Key key, blank());
  std::memcpy(key.page_.get(), page_.get(), kBytes);
  return key;
}

bool Key::is_none() const {
  auto bytes = secret();
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

std::span<const std::byte, Key::kBytes> Key::secret() const {
  HORO_CHECK(page_ != nullptr, "a key that was moved away is used");
  return std::span<const std::byte, kBytes>(page_.get(), kBytes);
}

Result<Key> Key::derive(std::string_view label, std::span<const std::byte> context) const {
  // One block of HKDF-Expand is as long as a key: T(1) = HMAC(PRK, info | 1), info = label | 0 | context.
  Mac extracted = hmac(std::as_bytes(std::span(kExtractSalt)), secret());
  std::vector<std::byte> info;
  for (char letter : label) info.push_back(static_cast<std::byte>(letter));
  info.push_back(std::byte{0});
  info.insert(info.end(), context.begin(), context.end());
  info.push_back(std::byte{1});
  Mac expanded = hmac(extracted, info);
  HORO_ASSIGN(Key key, blank());
  std::copy(expanded.begin(), expanded.end(), key.page_.get());
  OPENSSL_cleanse(extracted.data(), extracted.size());
  OPENSSL_cleanse(expanded.data(), expanded.size());
  return key;
}

Mac Key::mac(std::initializer_list<std::span<const std::byte>> parts) const {
  std::vector<std::byte> joined;
  for (auto part : parts) joined.insert(joined.end(), part.begin(), part.end());
  return hmac(secret(), joined);
}

bool equal(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

void fill_random(std::span<std::byte> bytes) {
  bool done = RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) == 1;
  HORO_CHECK(done, "the system's random generator does not work");
}

}  // namespace horo::net
