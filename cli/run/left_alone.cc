#include "cli/run/left_alone.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "horo/base/log.h"
#include "horo/base/text.h"
#include "horo/net/address.h"
#include "horo/rendezvous/tcp_store.h"

namespace horo::cli::launch {

StoreAccess StoreAccess::of(const StartOrder& order) {
  const auto value = [&](const char* name) {
    const auto found = order.environment.find(name);
    return found == order.environment.end() ? std::string() : found->second;
  };
  return {value("HORO_STORE"), value("HORO_JOB_ID"), order.key};
}

bool store_answers(const StoreAccess& store, Deadline deadline) {
  const auto to = net::resolve(store.address);
  auto key = net::Key::from_bytes(store.key);
  if (!to.ok() || !key.ok()) return false;
  Log log{LogLevel::kOff};
  const rendezvous::TcpStoreOptions options{store.job, std::make_shared<const net::Key>(std::move(*key)), &log};
  return rendezvous::TcpStore::connect(*to, options, deadline).ok();
}

void OutputFiles::write(int rank, const std::string& folder, Stream stream, std::string_view bytes) {
  if (folder.empty() || stream == Stream::kResult) return;
  const auto [place, is_new] = files_.try_emplace({rank, stream});
  if (is_new) {
    const std::string path = text(folder, "/", name(stream));
    place->second = net::UniqueFd(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  }
  while (place->second && !bytes.empty()) {
    const ssize_t count = ::write(place->second.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // A full disk does not end a job.
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace horo::cli::launch
