#include "horo/engine/timeline.h"

#include <filesystem>
#include <utility>

#include "horo/base/system.h"
#include "horo/base/text.h"

namespace horo::engine {

namespace {

constexpr auto kGather = std::chrono::milliseconds(20);  ///< Between an event and the write that it is part of.
constexpr auto kPatience = std::chrono::seconds(1);      ///< With readers that hold the lock.
constexpr size_t kLargeWrite = 64 << 10;

int64_t wall_microseconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string timeline_path(const std::string& path, int rank) {
  if (rank == 0) return path;
  const std::filesystem::path whole(path);
  if (whole.extension() != ".json") return text(path, ".rank", rank);
  std::filesystem::path own = whole;
  return own.replace_extension(text(".rank", rank, ".json")).string();
}

Timeline::Timeline(int rank, int size, std::string clock, Log& log, size_t capacity)
    : rank_(rank), size_(size), clock_(std::move(clock)), log_(log), capacity_(capacity) {}

Timeline::~Timeline() { stop(); }

Status Timeline::start(const std::string& path, bool mark_cycles) {
  stop();
  std::lock_guard lock(control_);
  TraceText text({rank_, size_, host_name(), clock_, Clock::now(), wall_microseconds()});
  HORO_ASSIGN(TraceFile file, TraceFile::create(timeline_path(path, rank_), text.first()));
  if (!queue_) queue_ = std::make_unique<BoundedQueue<TraceEvent>>(capacity_);
  auto writing = std::make_shared<Writing>(Writing{std::move(text), std::move(file), {}, 0, dropped(), {}});
  writing->generation = generation_.fetch_add(1, std::memory_order_relaxed) + 1;
  HORO_ASSIGN(writer_,
              Thread::start("horo-timeline", [this, writing](const std::stop_token& stop) { write(stop, *writing); }));
  marks_cycles_.store(mark_cycles, std::memory_order_relaxed);
  on_.store(true, std::memory_order_release);  // The queue is there.
  return {};
}

void Timeline::stop() {
  std::lock_guard lock(control_);
  on_.store(false, std::memory_order_relaxed);
  writer_ = Thread();
}

void Timeline::push(TraceEvent event) {
  if (!on_.load(std::memory_order_acquire)) return;
  event.generation = generation_.load(std::memory_order_relaxed);
  if (!queue_->push(event)) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  // Both sides exchange the same word, so one comes first: either the writer finds the event, or we find it asleep.
  if (!asleep_.exchange(false, std::memory_order_acq_rel)) return;
  std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_one();
}

void Timeline::collect(Writing& writing) {
  TraceEvent event;
  while (writing.pending.size() < kLargeWrite && queue_->pop(event)) {
    if (event.generation == writing.generation) writing.text.add(event, writing.pending);
  }
  const uint64_t dropped = this->dropped();
  if (dropped == writing.dropped_said) return;
  const uint64_t fresh = dropped - std::exchange(writing.dropped_said, dropped);
  writing.text.add_dropped(fresh, Clock::now(), writing.pending);
  log_.limited(LogLevel::kWarning, "timeline", "the timeline leaves out ", fresh,
               " events, which came faster than they could be written");
}

bool Timeline::flush(Writing& writing, bool force) {
  while (true) {
    collect(writing);
    if (writing.pending.empty()) return true;
    const Time now = Clock::now();
    const bool patient = writing.held_since == Time{} || now - writing.held_since < kPatience;
    Result<bool> written = writing.file.append(writing.pending, force || !patient);
    if (!written.ok()) {
      on_.store(false, std::memory_order_relaxed);
      log_.warning(written.status().message(), "; the timeline ends here, and the job goes on without it");
      return false;
    }
    if (!*written) {
      if (writing.held_since == Time{}) writing.held_since = now;
      return true;
    }
    writing.held_since = {};
    writing.pending.clear();
  }
}

void Timeline::await_events(const std::stop_token& stop, bool pending) {
  std::unique_lock lock(mutex_);
  if (!pending) {
    asleep_.exchange(true, std::memory_order_acq_rel);
    if (queue_->empty()) changed_.wait(lock, [&] { return woken_ || stop.stop_requested(); });
    asleep_.store(false, std::memory_order_relaxed);
    woken_ = false;
  }
  changed_.wait_for(lock, kGather, [&] { return stop.stop_requested(); });
}

void Timeline::write(const std::stop_token& stop, Writing& writing) {
  std::stop_callback wake(stop, [this] {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  bool open = true;
  while (open && !stop.stop_requested()) {
    await_events(stop, !writing.pending.empty());
    open = flush(writing, false);
  }
  if (open) flush(writing, true);
  if (Status status = writing.file.finish(); !status.ok()) log_.warning(status.message());
}

}  // namespace horo::engine
