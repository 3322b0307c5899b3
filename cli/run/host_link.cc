#include "cli/run/host_link.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "cli/process.h"

#include "horo/base/build.h"
#include "horo/base/text.h"
#include "horo/net/frame.h"
#include "horo/net/socket.h"

namespace horo::cli::launch {

namespace {

constexpr size_t kMostComplaints = 2000;
/// The agent's number for our own standard error.
constexpr int kWordsDescriptor = 42;

std::string one_line(std::string words) {
  while (!words.empty() && (words.back() == '\n' || words.back() == '\r')) words.pop_back();
  for (char& letter : words) {
    if (letter == '\n' || letter == '\r') letter = ' ';
  }
  return words;
}

}  // namespace

Result<HostLink> HostLink::start(const std::string& host, bool is_here, const SshOptions& ssh, bool elastic) {
  HostLink link;
  link.name_ = host;
  link.is_here_ = is_here;
  const Environment environment = Environment::of_process();
  SpawnOptions options;
  options.environment = environment.variables();
  link.words_ = is_here ? std::vector<std::string>{"horo", "agent"} : ssh_words(ssh, host, own_path());
  if (is_here) {
    options.program = "/proc/self/exe";
  } else {
    HORO_ASSIGN(options.program, find_program(link.words_[0], environment.find("PATH").value_or("")));
  }
  net::UniqueFd for_words;
  if (is_here && elastic) {
    for_words = net::UniqueFd(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kWordsDescriptor + 1));
    link.words_.push_back(text(kWordsDescriptor));
    options.kept = {{for_words.get(), kWordsDescriptor}};
  }
  options.arguments = link.words_;
  HORO_ASSIGN(auto ends, net::Socket::pair());
  HORO_ASSIGN(Pipe complaints, Pipe::create());
  net::UniqueFd theirs = ends.second.release();
  fcntl(theirs.get(), F_SETFL, 0);  // ssh expects streams that block.
  options.input = theirs.get();
  options.output = theirs.get();
  options.error = complaints.to.get();
  HORO_ASSIGN(link.child_, spawn(options));
  net::UniqueFd mine = ends.first.release();
  net::UniqueFd again(fcntl(mine.get(), F_DUPFD_CLOEXEC, 3));
  HORO_ASSIGN(link.duct_, Duct::adopt(std::move(mine), std::move(again), true));
  link.complaints_ = std::move(complaints.from);
  fcntl(link.complaints_.get(), F_SETFL, O_NONBLOCK);
  return link;
}

bool HostLink::read_complaints(std::vector<std::string>& lines) {
  std::array<char, 4096> bytes;
  const ssize_t got = read(complaints_.get(), bytes.data(), bytes.size());
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  for (std::string& line : cutter_.add({bytes.data(), static_cast<size_t>(got)})) lines.push_back(std::move(line));
  if (got == 0) {
    if (std::string rest = cutter_.rest(); !rest.empty()) lines.push_back(std::move(rest));
  }
  for (const std::string& line : lines) {
    if (last_complaints_.size() < kMostComplaints) last_complaints_ += line;
  }
  return got > 0;
}

std::string HostLink::why_lost() const {
  const std::string said = one_line(last_complaints_);
  if (!exit_status_) return "the connection to its agent broke";
  if (const int why = child_.start_error(); why != 0) return text("cannot run ", words_[0], ": ", std::strerror(why));
  if (WIFSIGNALED(*exit_status_)) {
    return text(words_[0], " was ended by signal ", WTERMSIG(*exit_status_), " (", strsignal(WTERMSIG(*exit_status_)),
                ")");
  }
  const int code = WEXITSTATUS(*exit_status_);
  if (is_here_) return text("its agent ended with code ", code, said.empty() ? "" : ": ", said);
  if (hello)
    return text("the connection to its agent broke (ssh ended with code ", code, said.empty() ? ")" : "): ", said);
  return explain_ssh(code, name_, said);
}

Status check_versions(const AgentHello& hello) {
  const std::string_view mine = build_info().version;
  if (hello.protocol != kLaunchProtocol) {
    return {Code::kIncompatible, text("versions differ: it has horo ", hello.version, " (launch protocol ",
                                      hello.protocol, "), here is horo ", mine, " (launch protocol ", kLaunchProtocol,
                                      "); install the same version on all hosts")};
  }
  const bool overlap = hello.lowest_wire <= net::kWireVersionHighest && net::kWireVersionLowest <= hello.highest_wire;
  if (overlap) return {};
  return {Code::kIncompatible,
          text("versions differ: it has horo ", hello.version, " (wire versions ", hello.lowest_wire, " to ",
               hello.highest_wire, "), here is horo ", mine, " (wire versions ", net::kWireVersionLowest, " to ",
               net::kWireVersionHighest, "); install the same version on all hosts")};
}

}  // namespace horo::cli::launch
