#include "horo/group/affinity.h"

#include <charconv>
#include <vector>

#include "horo/base/text.h"

namespace horo::group {

Result<int> core_for(std::string_view list, size_t local_rank, size_t local_size) {
  if (list.empty()) return -1;
  std::vector<int> cores;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    int core = -1;
    const auto [rest, error] = std::from_chars(list.data() + begin, list.data() + end, core);
    if (error != std::errc{} || rest != list.data() + end || core < 0) {
      return Status(Code::kInvalidArgument, text("HORO_THREAD_AFFINITY holds '", list,
                                                 "', accepted is a core, or a core for each rank of a host: 0,2,4"));
    }
    cores.push_back(core);
    begin = end + 1;
  }
  if (cores.size() == 1) return cores.front();
  if (cores.size() >= local_size) return cores[local_rank];
  return Status(Code::kInvalidArgument, text("HORO_THREAD_AFFINITY names ", cores.size(), " cores for ", local_size,
                                             " ranks on this host; name one, or one for each"));
}

}  // namespace horo::group
