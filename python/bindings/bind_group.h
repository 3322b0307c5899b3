// Ordered groups and what is under way in them, for the files of the extension module that use them.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "bindings.h"

#include "horo/api/messages.h"

namespace horo::python {

/// Requests that have ended, by number. Filled by threads of the library, which never take the interpreter's lock;
/// emptied by one thread of Python.
class Completions {
 public:
  void push(uint64_t number);
  std::vector<uint64_t> take(double seconds);
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> done_;
  bool closed_ = false;
};

/// Whom to tell that a request has ended, which may be asked for before or after it has.
class Notice {
 public:
  void ended();
  void tell(std::shared_ptr<Completions> to, uint64_t number);
  /// A horo_callback. `context` is a new std::shared_ptr<Notice>, which it takes.
  static void callback(void* context, const horo_status* status);

 private:
  std::mutex mutex_;
  bool ended_ = false;
  std::shared_ptr<Completions> to_;
  uint64_t number_ = 0;
};

/// What requests use whose objects Python has dropped. Under the interpreter's lock.
class Keeper {
 public:
  Keeper();
  ~Keeper() { clear(); }
  void add(horo_request* request, nanobind::object memory);
  /// Lets go of up to two that are done; and of all.
  void sweep();
  void clear();
  /// Whether this process was forked off the one that hands in, whose locks it must not touch.
  bool forked() const;

 private:
  struct Kept {
    horo_request* request;
    nanobind::object memory;
  };
  const int process_;
  std::deque<Kept> all_;
};

/// A request, and the objects whose memory it uses.
class UnderWay {
 public:
  UnderWay(horo_request* request, std::shared_ptr<Notice> notice, nanobind::object memory,
           std::shared_ptr<Keeper> keeper);
  UnderWay(UnderWay&& other) noexcept;
  ~UnderWay();

  bool done() const;
  /// False when it is not done by then, or a signal came; throws what it ended in. Others run meanwhile. With a stream
  /// of the device: what is put there later comes after it, and it need not be done yet.
  bool wait(double seconds, std::optional<uintptr_t> stream);
  /// Of a message that was received: the member that sent it.
  int source() const { return horo_request_source(request_); }
  void tell(std::shared_ptr<Completions> to, uint64_t number) { notice_->tell(std::move(to), number); }

 private:
  horo_request* request_;
  std::shared_ptr<Notice> notice_;
  nanobind::object memory_;
  std::shared_ptr<Keeper> keeper_;
};

/// A group; `owner` is the engine or runtime that it lives in.
struct OrderedGroup {
  OrderedGroup(Group made, std::vector<int> members, nanobind::object lives_in, std::shared_ptr<Keeper> keeps);
  OrderedGroup(OrderedGroup&&) = default;
  ~OrderedGroup();

  Group group;
  std::vector<int> ranks;
  nanobind::object owner;
  std::shared_ptr<Keeper> keeper;
  horo_engine* engine = nullptr;  ///< Where the program owns it: messages need it.
};

/// Made by an engine or a runtime, whose Python object is `owner`.
template <class Maker>
OrderedGroup make_group(Maker& maker, std::vector<int> ranks, nanobind::object owner) {
  auto made = [&] {
    const nanobind::gil_scoped_release release;
    return maker.group(ranks);
  }();
  return {std::move(made), std::move(ranks), std::move(owner), std::make_shared<Keeper>()};
}

}  // namespace horo::python
