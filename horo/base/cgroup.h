// Where the limits of this process's cgroups can be read, for cgroup v1 and v2.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace horo {

enum class CgroupVersion { kV1, kV2 };

/// A controller's folders for this process: its own cgroup first, then every one above it that can be seen.
struct Cgroup {
  CgroupVersion version = CgroupVersion::kV2;
  std::vector<std::filesystem::path> levels;
};

/// The cgroup that limits `controller` ("cpu", "memory"), or nothing where none is mounted. `root` stands for "/".
std::optional<Cgroup> find_cgroup(const std::filesystem::path& root, std::string_view controller);

/// The contents of a small file, without the final newline.
std::optional<std::string> read_small_file(const std::filesystem::path& path);
/// The first number in a file; nothing for a missing file or a word such as "max".
std::optional<int64_t> read_number(const std::filesystem::path& path);

}  // namespace horo
