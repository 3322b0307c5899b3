#include "tests/process.h"

#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "horo/base/text.h"

/// Of the address sanitizer's allocator, which mallinfo2() knows nothing of; null elsewhere.
extern "C" __attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes();

namespace horo::test {

namespace {

void for_each_entry(const std::string& folder, const std::function<void(const std::string& name)>& call) {
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (dirent* entry = readdir(entries)) {
    if (entry->d_name[0] != '.') call(entry->d_name);
  }
  closedir(entries);
}

std::set<std::string> socket_inodes(pid_t pid) {
  std::set<std::string> inodes;
  const std::string folder = text("/proc/", pid, "/fd");
  for_each_entry(folder, [&](const std::string& name) {
    char link[64] = {};
    if (readlink(text(folder, "/", name).c_str(), link, sizeof link - 1) <= 0) return;
    char inode[32] = {};
    if (std::sscanf(link, "socket:[%31[0-9]]", inode) == 1) inodes.insert(inode);
  });
  return inodes;
}

}  // namespace

Use use_of(pid_t pid, std::string_view thread) {
  Use use;
  const std::string folder = text("/proc/", pid, "/task");
  for_each_entry(folder, [&](const std::string& task) {
    std::string called;
    std::getline(std::ifstream(text(folder, "/", task, "/comm")), called);
    if (!thread.empty() && called != thread) return;
    std::ifstream schedstat(text(folder, "/", task, "/schedstat"));
    double nanoseconds = 0;
    if (schedstat >> nanoseconds) use.cpu_ms += nanoseconds / 1e6;
    std::ifstream status(text(folder, "/", task, "/status"));
    for (std::string word; status >> word;) {
      long count = 0;
      if (word == "voluntary_ctxt_switches:" && status >> count) use.switches += count;
    }
  });
  return use;
}

std::vector<std::string> listening_at(pid_t pid) {
  const std::set<std::string> inodes = socket_inodes(pid);
  std::vector<std::string> addresses;
  std::string line;
  // sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode: numbers in hexadecimal, 0A is LISTEN.
  std::ifstream tcp(text("/proc/", pid, "/net/tcp"));
  while (std::getline(tcp, line)) {
    unsigned ip = 0, port = 0, state = 0;
    char inode[32] = {};
    const int found =
        std::sscanf(line.c_str(), " %*d: %8X:%4X %*8X:%*4X %2X %*s %*s %*s %*s %*s %31s", &ip, &port, &state, inode);
    if (found != 4 || state != 0x0A || inodes.count(inode) == 0) continue;
    addresses.push_back(text(ip & 255, ".", ip >> 8 & 255, ".", ip >> 16 & 255, ".", ip >> 24, ":", port));
  }
  // Num RefCount Protocol Flags Type St Inode Path: flag 0x10000 is set on listening sockets.
  std::ifstream local(text("/proc/", pid, "/net/unix"));
  while (std::getline(local, line)) {
    std::istringstream words(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    if (!(words >> number >> references >> protocol >> flags >> type >> state >> inode >> path)) continue;
    if (flags == "00010000" && inodes.count(inode) > 0) addresses.push_back("unix:" + path);
  }
  return addresses;
}

size_t open_descriptors() {
  size_t count = 0;
  for_each_entry("/proc/self/fd", [&](const std::string&) { ++count; });
  return count - 1;  // The one that lists them.
}

size_t heap_bytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) return __sanitizer_get_current_allocated_bytes();
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    // "address permissions offset device inode name": files of libraries come and go with what is loaded lazily.
    count += line.find(".so") == std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace horo::test
