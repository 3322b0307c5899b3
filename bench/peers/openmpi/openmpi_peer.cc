// Open MPI over shared memory, or over TCP where asked.
//
// `launch` becomes mpirun with this program as its ranks. Hosts that are network namespaces are reached by a remote
// shell of our own (`rsh`), which enters the namespace and gives it a host name, because mpirun tells hosts by names.
// Called as horo_peer_openmpi-tuned, it keeps malloc from returning memory to the system after every call, and sums by
// segmented rings: what an expert would set.
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "bench/peers/launch.h"
#include "cli/bench/participant.h"

#include "horo/base/text.h"

namespace horo::bench {

namespace {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kI8:
      return MPI_INT8_T;
    case DType::kU8:
      return MPI_UINT8_T;
    case DType::kI16:
      return MPI_INT16_T;
    case DType::kU16:
      return MPI_UINT16_T;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kU32:
      return MPI_UINT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    case DType::kU64:
      return MPI_UINT64_T;
    case DType::kC64:
      return MPI_C_FLOAT_COMPLEX;
    case DType::kC128:
      return MPI_C_DOUBLE_COMPLEX;
    default:
      return MPI_DATATYPE_NULL;
  }
}

class OpenMpiRank final : public Participant {
 public:
  explicit OpenMpiRank(std::string transport) : transport_(std::move(transport)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string transport() const override { return transport_; }
  Status barrier() override { return outcome(MPI_Barrier(MPI_COMM_WORLD)); }

  Status run(const Command& command, const std::byte* input, std::byte* output) override {
    const MPI_Datatype type = type_of(command.dtype);
    if (type == MPI_DATATYPE_NULL) return Status(Code::kUnavailable, text("MPI has no type for ", name(command.dtype)));
    const int count = static_cast<int>(command.count);
    const int share = count / size_;
    const void* from = input == output ? MPI_IN_PLACE : static_cast<const void*>(input);
    switch (command.op) {
      case Op::kAllreduce:
        return outcome(MPI_Allreduce(from, output, count, type, MPI_SUM, MPI_COMM_WORLD));
      case Op::kReduce:
        return outcome(MPI_Reduce(rank_ == 0 ? from : input, output, count, type, MPI_SUM, 0, MPI_COMM_WORLD));
      case Op::kBroadcast:
        return outcome(MPI_Bcast(output, count, type, 0, MPI_COMM_WORLD));
      case Op::kAllgather:
        return outcome(MPI_Allgather(input, share, type, output, share, type, MPI_COMM_WORLD));
      case Op::kReducescatter:
        return outcome(MPI_Reduce_scatter_block(input, output, share, type, MPI_SUM, MPI_COMM_WORLD));
      case Op::kAlltoall:
        return outcome(MPI_Alltoall(input, share, type, output, share, type, MPI_COMM_WORLD));
      case Op::kGather:
        return outcome(MPI_Gather(input, share, type, output, share, type, 0, MPI_COMM_WORLD));
      case Op::kScatter:
        return outcome(MPI_Scatter(input, share, type, output, share, type, 0, MPI_COMM_WORLD));
      case Op::kSendRecv:
        return pass_on(count, type, input, output);
      case Op::kBarrier:
        return barrier();
      default:
        return Status(Code::kUnavailable, text("MPI has no ", name(command.op)));
    }
  }

 private:
  /// From the first to the last rank.
  Status pass_on(int count, MPI_Datatype type, const std::byte* input, std::byte* output) const {
    const int last = size_ - 1;
    MPI_Request sent = MPI_REQUEST_NULL;
    int code = rank_ == 0 ? MPI_Isend(input, count, type, last, 0, MPI_COMM_WORLD, &sent) : MPI_SUCCESS;
    if (code == MPI_SUCCESS && rank_ == last) {
      code = MPI_Recv(output, count, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return outcome(code == MPI_SUCCESS ? MPI_Wait(&sent, MPI_STATUS_IGNORE) : code);
  }
  static Status outcome(int code) {
    return code == MPI_SUCCESS ? Status() : Status(Code::kInternal, text("MPI error ", code));
  }
  int rank_ = 0;
  int size_ = 1;
  std::string transport_;
};

int run_rank(const std::string& folder, const std::string& transport) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  MPI_Init(nullptr, nullptr);
  int code = 0;
  {
    OpenMpiRank participant(transport);
    code = serve(participant, folder);
  }
  MPI_Finalize();
  return code;
}

bool enter(const PeerHost& host) {
  const int fd = open(("/run/netns/" + host.name_space).c_str(), O_RDONLY | O_CLOEXEC);
  return fd >= 0 && setns(fd, CLONE_NEWNET) == 0 && unshare(CLONE_NEWUTS) == 0 &&
         sethostname(host.name_space.data(), host.name_space.size()) == 0;
}

int become(const std::vector<std::string>& words) {
  std::vector<char*> list;
  for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  execvp(list[0], list.data());
  std::perror(list[0]);
  return 127;
}

/// mpirun calls it as HOST COMMAND...; the hosts' names are their namespaces.
int remote_shell(const std::vector<std::string>& words) {
  if (!enter({words.at(0), ""})) return 1;
  std::string command;
  for (size_t i = 1; i < words.size(); ++i) command += words[i] + " ";
  return become({"/bin/sh", "-c", command});
}

std::vector<std::string> tuning() {
  setenv("MALLOC_MMAP_THRESHOLD_", "4294967296", 1);
  setenv("MALLOC_TRIM_THRESHOLD_", "4294967296", 1);
  setenv("MALLOC_TOP_PAD_", "268435456", 1);
  constexpr const char* kSegmentedRing = "5";
  return {"--mca",
          "coll_tuned_use_dynamic_rules",
          "1",
          "--mca",
          "coll_tuned_allreduce_algorithm",
          kSegmentedRing,
          "--mca",
          "coll_tuned_allreduce_algorithm_segmentsize",
          "1048576"};
}

/// mpirun binds every rank to a core, or with more than two to a socket, and knows nothing of processors that this
/// process may not use. Whoever has less than all of them, or more ranks than cores, turns that off.
bool must_unbind(const Launch& asked) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return true;
  return asked.yield || CPU_COUNT(&usable) < sysconf(_SC_NPROCESSORS_ONLN);
}

int launch(const Launch& asked, bool tuned) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const bool tcp = asked.tcp || !asked.hosts.empty();
  std::vector<std::string> words{"mpirun", "--allow-run-as-root", "--oversubscribe", "-np", text(asked.ranks)};
  const auto set = [&](const std::string& name, const std::string& value) {
    words.insert(words.end(), {"--mca", name, value});
  };
  if (tcp) {
    set("btl", "tcp,self");
    set("pml", "ob1");
  }
  if (tuned) {
    const auto more = tuning();
    words.insert(words.end(), more.begin(), more.end());
  }
  if (asked.yield) set("mpi_yield_when_idle", "1");
  // Hosts are unbound too: every one of them would bind its first rank to the same first core.
  if (must_unbind(asked) || !asked.hosts.empty()) words.insert(words.end(), {"--bind-to", "none"});
  if (asked.hosts.empty()) {
    if (tcp) set("btl_tcp_if_include", "lo");
  } else {
    // mpirun itself runs in the first host. A script stands for the remote shell, which must be one word.
    const std::string shell = asked.folder + "/rsh";
    std::ofstream(shell) << "#!/bin/sh\nexec '" << self << "' rsh \"$@\"\n";
    std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
    set("plm_rsh_agent", shell);
    set("btl_tcp_if_include", "eth0");
    set("oob_tcp_if_include", "eth0");
    std::string hosts;
    const size_t slots = (static_cast<size_t>(asked.ranks) + asked.hosts.size() - 1) / asked.hosts.size();
    for (const PeerHost& host : asked.hosts) hosts += text(hosts.empty() ? "" : ",", host.name_space, ":", slots);
    words.insert(words.end(), {"--host", hosts, "--map-by", "slot"});
    if (!enter(asked.hosts.front())) return 1;
  }
  words.insert(words.end(), {self, "rank", asked.folder, tcp ? "tcp" : "shm"});
  return become(words);
}

}  // namespace

}  // namespace horo::bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() >= 3 && words[0] == "launch") {
    const bool tuned = std::string(argv[0]).ends_with("-tuned");
    return horo::bench::launch(horo::bench::read_launch({words.begin() + 1, words.end()}), tuned);
  }
  if (words.size() == 3 && words[0] == "rank") return horo::bench::run_rank(words[1], words[2]);
  if (words.size() >= 3 && words[0] == "rsh") return horo::bench::remote_shell({words.begin() + 1, words.end()});
  std::fprintf(stderr, "usage: %s launch FOLDER RANKS [--tcp] [--yield] [--host NAMESPACE ADDRESS]...\n", argv[0]);
  return 2;
}
