#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/check/job.h"

#include "horo/base/text.h"

namespace horo::cli {

namespace {

/// The inodes of all sockets that the process has open.
std::set<std::string> socket_inodes(pid_t pid) {
  std::set<std::string> inodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(text("/proc/", pid, "/fd"), error)) {
    const std::string target = std::filesystem::read_symlink(entry, error).string();
    if (target.rfind("socket:[", 0) == 0) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

/// "0100007F:1F90", as the kernel writes 127.0.0.1:8080 on a little-endian machine.
Result<net::Address> ipv4(const std::string& hex) {
  const auto word = std::strtoul(hex.substr(0, 8).c_str(), nullptr, 16);
  const auto port = static_cast<uint16_t>(std::strtoul(hex.substr(9).c_str(), nullptr, 16));
  return net::Address::ip(text(word & 255, ".", (word >> 8) & 255, ".", (word >> 16) & 255, ".", (word >> 24) & 255),
                          port);
}

}  // namespace

std::vector<net::Address> listening_sockets(pid_t pid) {
  const std::set<std::string> inodes = socket_inodes(pid);
  std::vector<net::Address> found;
  const auto keep = [&](const Result<net::Address>& address) {
    if (address.ok()) found.push_back(*address);
  };
  std::ifstream tcp(text("/proc/", pid, "/net/tcp"));
  for (std::string line; std::getline(tcp, line);) {
    std::istringstream words(line);
    std::array<std::string, 10> columns;
    for (std::string& column : columns) words >> column;
    if (columns[3] == "0A" && inodes.count(columns[9]) != 0) keep(ipv4(columns[1]));
  }
  std::ifstream local(text("/proc/", pid, "/net/unix"));
  for (std::string line; std::getline(local, line);) {
    std::istringstream words(line);
    std::array<std::string, 8> columns;  // Num RefCount Protocol Flags Type St Inode Path
    for (std::string& column : columns) words >> column;
    const bool listens = columns[3] == "00010000";
    if (listens && inodes.count(columns[6]) != 0 && columns[7].rfind('@', 0) == 0) {
      keep(net::Address::unix_abstract(columns[7].substr(1)));
    }
  }
  return found;
}

}  // namespace horo::cli
