#include "horo/rendezvous/handover.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <vector>

#include "horo/base/check.h"
#include "horo/base/text.h"
#include "horo/net/poller.h"
#include "horo/net/system_error.h"

namespace horo::rendezvous {

namespace {

constexpr size_t kMostAddress = 255;
/// What was left longer ago and is not locked is of no use to anybody.
constexpr time_t kStaleSeconds = 3600;

Status untrusted(const std::string& path, std::string_view why) {
  return {Code::kUnauthenticated, text(path, " ", why, "; remove it, or set HORO_KEY_FILE and HORO_STORE, or TMPDIR")};
}

/// Any name of a run as one of a file.
std::string file_name(const std::string& run) {
  HORO_CHECK(!run.empty(), "a run without a name cannot be told from others");
  std::string name;
  for (const char letter : run) {
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                       (letter >= '0' && letter <= '9') || letter == '-' || letter == '_';
    name += plain ? letter : '_';
  }
  // Different runs must not become one, and the name must fit.
  uint64_t hash = 14695981039346656037ULL;
  for (const char letter : run) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  return text(name.substr(0, 100), "-", std::hex, hash);
}

Status check_private(int fd, const std::string& path, bool folder) {
  struct stat found {};
  if (fstat(fd, &found) != 0) return net::system_error(text("looking at ", path), errno);
  if (folder ? !S_ISDIR(found.st_mode) : !S_ISREG(found.st_mode)) {
    return untrusted(path, folder ? "is not a folder" : "is not a plain file");
  }
  if (found.st_uid != geteuid()) return untrusted(path, text("belongs to user ", found.st_uid, ", not ", geteuid()));
  if ((found.st_mode & 077) != 0) return untrusted(path, "can be used by other users");
  if (!folder && found.st_nlink != 1) return untrusted(path, "has several names");
  return {};
}

Result<net::UniqueFd> open_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return net::system_error(text("making folder ", path), errno);
  net::UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && (errno == ELOOP || errno == ENOTDIR)) return untrusted(path, "is a link or no folder");
  if (!fd) return net::system_error(text("opening folder ", path), errno);
  HORO_TRY(check_private(fd.get(), path, true));
  return fd;
}

bool is_locked(int fd) {
  if (flock(fd, LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  flock(fd, LOCK_UN);
  return false;
}

/// What crashed runs have left.
void sweep(int folder) {
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = copy < 0 ? nullptr : fdopendir(copy);
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    net::UniqueFd fd(openat(folder, entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    struct stat found {};
    if (!fd || fstat(fd.get(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    if (time(nullptr) - found.st_mtime > kStaleSeconds && !is_locked(fd.get())) unlinkat(folder, entry->d_name, 0);
  }
  closedir(entries);
}

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return net::system_error(text("writing ", path), errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

/// Nothing when no file is there whose writer lives.
Result<std::optional<HandedOver>> look(int folder, const std::string& name, const std::string& path) {
  net::UniqueFd fd(openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::optional<HandedOver>();
  if (!fd && errno == ELOOP) return untrusted(path, "is a link");
  if (!fd) return net::system_error(text("opening ", path), errno);
  struct stat found {};
  if (fstat(fd.get(), &found) == 0 && found.st_nlink == 0) return std::optional<HandedOver>();  // Just replaced.
  HORO_TRY(check_private(fd.get(), path, false));
  if (!is_locked(fd.get())) return std::optional<HandedOver>();
  std::array<std::byte, net::Key::kBytes + kMostAddress + 1> bytes;
  const ssize_t count = read(fd.get(), bytes.data(), bytes.size());
  if (count <= static_cast<ssize_t>(net::Key::kBytes) || count == static_cast<ssize_t>(bytes.size())) {
    return untrusted(path, "was not written by a rank");
  }
  auto key = net::Key::from_bytes(std::span(bytes).first(net::Key::kBytes));
  const auto* address = reinterpret_cast<const char*>(bytes.data()) + net::Key::kBytes;
  std::string store(address, static_cast<size_t>(count) - net::Key::kBytes);
  explicit_bzero(bytes.data(), bytes.size());
  if (!key.ok()) return key.status();
  return std::optional<HandedOver>(HandedOver{std::move(*key), std::move(store)});
}

}  // namespace

std::string handover_folder(const std::string& temporary) {
  return text(temporary.empty() ? "/tmp" : temporary, "/horo-", geteuid());
}

Result<Handover> Handover::leave(const std::string& folder, const std::string& run, const net::Key& key,
                                 const std::string& store) {
  if (store.empty() || store.size() > kMostAddress) {
    return Status(Code::kInvalidArgument, text("the store's address '", store, "' cannot be handed over"));
  }
  HORO_ASSIGN(net::UniqueFd place, open_folder(folder));
  sweep(place.get());
  const std::string name = file_name(run);
  std::array<std::byte, 8> random;
  net::fill_random(random);
  uint64_t number = 0;
  for (const std::byte one : random) number = number << 8 | std::to_integer<uint64_t>(one);
  const std::string draft = text(".", getpid(), "-", number);
  const std::string path = text(folder, "/", name);
  net::UniqueFd file(openat(place.get(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return net::system_error(text("creating ", path), errno);
  Status written =
      flock(file.get(), LOCK_EX | LOCK_NB) == 0 ? Status() : net::system_error(text("locking ", path), errno);
  if (written.ok()) written = write_all(file.get(), key.secret(), path);
  if (written.ok()) written = write_all(file.get(), std::as_bytes(std::span(store)), path);
  if (written.ok() && renameat(place.get(), draft.c_str(), place.get(), name.c_str()) != 0) {
    written = net::system_error(text("naming ", path), errno);
  }
  if (!written.ok()) {
    unlinkat(place.get(), draft.c_str(), 0);
    return written;
  }
  return Handover(std::move(place), std::move(file), name);
}

Handover::~Handover() {
  if (!file_) return;
  // A later one of the same name stays.
  struct stat mine {
  }, there{};
  const bool same = fstat(file_.get(), &mine) == 0 &&
                    fstatat(folder_.get(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
                    mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
  if (same) unlinkat(folder_.get(), name_.c_str(), 0);
}

Result<HandedOver> await_handover(const std::string& folder, const std::string& run, Deadline deadline) {
  HORO_ASSIGN(const net::UniqueFd place, open_folder(folder));
  const std::string name = file_name(run);
  const std::string path = text(folder, "/", name);
  const net::UniqueFd changes(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  // By descriptor: the path may lead elsewhere by now.
  const std::string by_descriptor = text("/proc/self/fd/", place.get());
  if (!changes || inotify_add_watch(changes.get(), by_descriptor.c_str(), IN_MOVED_TO) < 0) {
    return net::system_error(text("watching ", folder, " (set HORO_KEY_FILE and HORO_STORE to do without)"), errno);
  }
  while (true) {
    HORO_ASSIGN(auto found, look(place.get(), name, path));
    if (found) return std::move(*found);
    const Status ready = net::wait_ready(changes.get(), net::Interest::kRead, deadline, "the key of the first rank");
    if (ready.code() == Code::kTimeout) {
      return Status(Code::kTimeout, text("the first rank of this host has not left the job's key in ", path,
                                         " in time; did it start, and does it call init()?"));
    }
    HORO_TRY(ready);
    alignas(inotify_event) std::array<std::byte, 4096> events;
    while (read(changes.get(), events.data(), events.size()) > 0) {
    }
  }
}

}  // namespace horo::rendezvous
