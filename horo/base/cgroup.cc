#include "horo/base/cgroup.h"

#include <charconv>
#include <fstream>
#include <sstream>

namespace horo {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& line, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(line);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

bool contains(const std::vector<std::string>& parts, std::string_view part) {
  for (const std::string& candidate : parts) {
    if (candidate == part) return true;
  }
  return false;
}

struct Mount {
  std::string source;  // The cgroup that is seen at `target`.
  std::string target;
};

// Lines of mountinfo(5): "36 35 0:31 SOURCE TARGET OPTIONS [TAGS...] - TYPE DEVICE SUPER-OPTIONS".
std::optional<Mount> find_mount(const fs::path& root, CgroupVersion version, std::string_view controller) {
  std::ifstream in(root / "proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::vector<std::string> place = split(line.substr(0, dash), ' ');
    std::vector<std::string> type = split(line.substr(dash + 3), ' ');
    if (place.size() < 5 || type.size() < 3) continue;
    bool fits = version == CgroupVersion::kV2 ? type[0] == "cgroup2"
                                              : type[0] == "cgroup" && contains(split(type[2], ','), controller);
    if (fits) return Mount{place[3], place[4]};
  }
  return std::nullopt;
}

// Lines of /proc/self/cgroup: "4:cpu,cpuacct:/path" (v1) or "0::/path" (v2).
std::optional<std::string> find_path(const fs::path& root, CgroupVersion version, std::string_view controller) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    size_t first = line.find(':');
    size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    bool fits = version == CgroupVersion::kV2 ? controllers.empty() : contains(split(controllers, ','), controller);
    if (fits) return line.substr(second + 1);
  }
  return std::nullopt;
}

std::optional<Cgroup> find_cgroup(const fs::path& root, CgroupVersion version, std::string_view controller) {
  auto mount = find_mount(root, version, controller);
  if (!mount) return std::nullopt;
  fs::path top = root / fs::path(mount->target).relative_path();
  // Inside a container the path may be told as seen from outside. Then it does not lie below the mount, and the mount
  // itself is the container's cgroup.
  fs::path below = fs::path(find_path(root, version, controller).value_or("/")).lexically_relative(mount->source);
  bool inside = !below.empty() && *below.begin() != ".." && below != ".";
  fs::path folder = inside ? top / below : top;
  std::error_code error;
  if (!fs::is_directory(folder, error)) folder = top;

  Cgroup cgroup{version, {}};
  while (true) {
    cgroup.levels.push_back(folder);
    if (folder == top || !folder.has_relative_path()) return cgroup;
    folder = folder.parent_path();
  }
}

}  // namespace

std::optional<Cgroup> find_cgroup(const fs::path& root, std::string_view controller) {
  // On a hybrid system a controller is bound either to v1 or to v2; a v1 mount of it decides.
  if (auto cgroup = find_cgroup(root, CgroupVersion::kV1, controller)) return cgroup;
  return find_cgroup(root, CgroupVersion::kV2, controller);
}

std::optional<std::string> read_small_file(const fs::path& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream out;
  out << in.rdbuf();
  std::string contents = std::move(out).str();
  while (!contents.empty() && contents.back() == '\n') contents.pop_back();
  return contents;
}

std::optional<int64_t> read_number(const fs::path& path) {
  auto contents = read_small_file(path);
  if (!contents) return std::nullopt;
  int64_t value = 0;
  auto [end, error] = std::from_chars(contents->data(), contents->data() + contents->size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

}  // namespace horo
