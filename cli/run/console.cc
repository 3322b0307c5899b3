#include "cli/run/console.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <iomanip>

#include "horo/base/text.h"
#include "horo/net/poller.h"
#include "horo/net/system_error.h"

namespace horo::cli::launch {

namespace {

/// "Mon May 11 12:00:00 2020", as asctime(3) has it.
std::string clock_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 64> words{};
  return {words.data(), std::strftime(words.data(), words.size(), "%a %b %e %H:%M:%S %Y", &parts)};
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // A full disk does not end a job.
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

size_t index(Stream stream) { return static_cast<size_t>(stream); }

}  // namespace

Console::Console(const ConsoleOptions& options) : options_(options) {
  const bool timestamps = options.timestamps;
  targets_.push_back({Sink::of(STDOUT_FILENO), LineMixer(timestamps)});
  if (!same_target(STDOUT_FILENO, STDERR_FILENO)) targets_.push_back({Sink::of(STDERR_FILENO), LineMixer(timestamps)});
}

Result<Console> Console::open(const ConsoleOptions& options) {
  Console console(options);
  console.ranks_.resize(static_cast<size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) HORO_TRY(console.open_files(rank));
  return console;
}

void Console::add_rank(int rank) {
  if (static_cast<size_t>(rank) >= ranks_.size()) ranks_.resize(static_cast<size_t>(rank) + 1);
  if (const Status opened = open_files(rank); !opened.ok()) say(text("horo run: ", opened.message()));
}

std::string Console::folder_of(int rank) const {
  if (options_.folder.empty()) return {};
  const int width = static_cast<int>(text(options_.ranks - 1).size());
  return text(options_.folder, "/rank.", std::setw(width), std::setfill('0'), rank);
}

Status Console::open_files(int rank) {
  const std::string folder = folder_of(rank);
  if (folder.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return Status(Code::kInvalidArgument, text("--output-filename: cannot make ", folder, ": ", error.message()));
  for (Stream stream : {Stream::kStdout, Stream::kStderr}) {
    const std::string path = text(folder, "/", name(stream));
    net::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) return net::system_error(text("--output-filename: opening ", path), errno);
    ranks_[static_cast<size_t>(rank)].files[index(stream)] = std::move(file);
  }
  return {};
}

Console::Target& Console::target(Stream stream) { return targets_[std::min(index(stream), targets_.size() - 1)]; }

void Console::write(int rank, Stream stream, std::string_view bytes) {
  if (rank < 0 || static_cast<size_t>(rank) >= ranks_.size()) return;
  RankState& state = ranks_[static_cast<size_t>(rank)];
  if (const net::UniqueFd& file = state.files[index(stream)]; file) write_all(file.get(), bytes);
  for (const std::string& line : state.cutters[index(stream)].add(bytes)) show(rank, stream, line);
}

void Console::finish(int rank) {
  if (static_cast<size_t>(rank) >= ranks_.size()) return;
  for (Stream stream : {Stream::kStdout, Stream::kStderr}) {
    const std::string rest = ranks_[static_cast<size_t>(rank)].cutters[index(stream)].rest();
    if (!rest.empty()) show(rank, stream, rest);
  }
}

void Console::show(int rank, Stream stream, std::string_view line) {
  ranks_[static_cast<size_t>(rank)].tail.add(stream, line);
  if (broken_) return;
  Target& to = target(stream);
  to.sink.add(to.mixer.write(rank, stream, line, clock_text()));
}

void Console::say(std::string_view line) {
  Target& to = target(Stream::kStderr);
  to.sink.add(to.mixer.write_own(line));
}

Status Console::flush() {
  Status worst;
  for (Target& to : targets_) {
    Status status = to.sink.flush();
    if (status.ok()) continue;
    to.sink = Sink::of(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    broken_ = true;
    worst = std::move(status);
  }
  return worst;
}

size_t Console::queued() const {
  size_t sum = 0;
  for (const Target& to : targets_) sum += to.sink.queued();
  return sum;
}

std::vector<int> Console::waiting() const {
  std::vector<int> list;
  for (const Target& to : targets_) {
    if (to.sink.queued() > 0) list.push_back(to.sink.fd());
  }
  return list;
}

void Console::drain(Deadline deadline) {
  while (flush().ok() && queued() > 0) {
    if (!net::wait_ready(waiting().front(), net::Interest::kWrite, deadline, "output").ok()) return;
  }
}

}  // namespace horo::cli::launch
