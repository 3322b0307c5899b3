// Ordered groups: every operation on raw addresses, waited for or under way.
#include "bind_group.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <utility>

namespace nb = nanobind;

namespace horo::python {

namespace {

/// True once it is done, or in the stream; throws what it ended in.
bool ended(horo_request* request, double seconds, std::optional<uintptr_t> stream) {
  horo_status* status = stream ? horo_request_wait_in_stream(request, reinterpret_cast<void*>(*stream), seconds)
                               : horo_request_wait_interruptible(request, seconds);
  const horo_code code = horo_status_code(status);
  if (code == HORO_TIMEOUT || code == HORO_INTERRUPTED) {
    // Of the wait, or of the operation, which may have ended just now: asked again it says which.
    horo_status_free(status);
    if (horo_request_done(request) != 1) return false;
    status = horo_request_wait(request, 0);
  }
  check(status);
  return true;
}

}  // namespace

void Completions::push(uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    done_.push_back(number);
  }
  changed_.notify_one();
}

std::vector<uint64_t> Completions::take(double seconds) {
  const nb::gil_scoped_release release;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return !done_.empty() || closed_; });
  return std::exchange(done_, {});
}

void Completions::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void Notice::ended() {
  std::shared_ptr<Completions> to;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    to = to_;
  }
  if (to) to->push(number_);
}

void Notice::tell(std::shared_ptr<Completions> to, uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    number_ = number;
    to_ = to;
    if (!ended_) return;
  }
  to->push(number);
}

void Notice::callback(void* context, const horo_status*) {
  const std::unique_ptr<std::shared_ptr<Notice>> notice(static_cast<std::shared_ptr<Notice>*>(context));
  (*notice)->ended();
}

UnderWay::UnderWay(horo_request* request, std::shared_ptr<Notice> notice, nb::object memory,
                   std::shared_ptr<Keeper> keeper)
    : request_(request), notice_(std::move(notice)), memory_(std::move(memory)), keeper_(std::move(keeper)) {}

UnderWay::UnderWay(UnderWay&& other) noexcept
    : request_(std::exchange(other.request_, nullptr)),
      notice_(std::move(other.notice_)),
      memory_(std::move(other.memory_)),
      keeper_(std::move(other.keeper_)) {}

UnderWay::~UnderWay() {
  if (request_ == nullptr) return;
  if (keeper_->forked() || (memory_.is_valid() && horo_request_done(request_) != 1)) {
    keeper_->add(request_, std::move(memory_));
  } else {
    horo_request_destroy(request_);
  }
}

bool UnderWay::done() const { return horo_request_done(request_) == 1; }

bool UnderWay::wait(double seconds, std::optional<uintptr_t> stream) {
  bool waited = false;
  try {
    const nb::gil_scoped_release release;
    waited = ended(request_, seconds, stream);
  } catch (...) {
    memory_.reset();
    throw;
  }
  if (waited && (!stream || done())) memory_.reset();
  return waited;
}

Keeper::Keeper() : process_(getpid()) {}

bool Keeper::forked() const { return process_ != getpid(); }

void Keeper::add(horo_request* request, nb::object memory) { all_.push_back({request, std::move(memory)}); }

void Keeper::sweep() {
  for (int i = 0; i < 2 && !all_.empty() && horo_request_done(all_.front().request) == 1; ++i) {
    // First out of the list: what it frees may run Python, which may hand in.
    const Kept done = std::move(all_.front());
    all_.pop_front();
    horo_request_destroy(done.request);
  }
}

void Keeper::clear() {
  if (forked()) return;
  for (const Kept& one : std::exchange(all_, {})) horo_request_destroy(one.request);
}

OrderedGroup::OrderedGroup(Group made, std::vector<int> members, nb::object lives_in, std::shared_ptr<Keeper> keeps)
    : group(std::move(made)), ranks(std::move(members)), owner(std::move(lives_in)), keeper(std::move(keeps)) {}

OrderedGroup::~OrderedGroup() {
  if (!keeper) return;  // Moved from.
  // The parent's locks may be held for ever in a forked child.
  if (keeper->forked()) {
    (void)new Group(std::move(group));
    return;
  }
  const nb::gil_scoped_release release;
  const Group ends = std::move(group);
}

namespace {

/// Shared with threads of the library, which must not touch a Python object, not even to let go of it.
struct CompletionsPlace {
  std::shared_ptr<Completions> completions = std::make_shared<Completions>();
};

struct Call {
  horo_operation operation = HORO_OPERATION_INIT;
  std::vector<uint64_t> counts, receive_counts;
};

void fill(Call& call, const OrderedGroup& self, int kind, int dtype, int op, int root, int target, uint64_t count,
          double prescale, double postscale, double timeout) {
  const auto members = static_cast<size_t>(self.group.size());
  for (const std::vector<uint64_t>* counts : {&call.counts, &call.receive_counts}) {
    if (!counts->empty() && counts->size() != members) throw nb::value_error("one count for each member of the group");
  }
  call.operation.kind = static_cast<horo_kind>(kind);
  call.operation.dtype = static_cast<horo_dtype>(dtype);
  call.operation.op = static_cast<horo_reduce_op>(op);
  call.operation.root = root;
  call.operation.target = target;
  call.operation.count = count;
  call.operation.counts = call.counts.empty() ? nullptr : call.counts.data();
  call.operation.receive_counts = call.receive_counts.empty() ? nullptr : call.receive_counts.data();
  call.operation.prescale = prescale;
  call.operation.postscale = postscale;
  call.operation.timeout = timeout;
}

template <class Hand>
UnderWay hand(OrderedGroup& self, nb::object memory, const Hand& call) {
  self.keeper->sweep();
  auto notice = std::make_shared<Notice>();
  auto context = std::make_unique<std::shared_ptr<Notice>>(notice);
  horo_request* request = nullptr;
  check(call(context.get(), &request));
  (void)context.release();  // The callback's now.
  return {request, std::move(notice), std::move(memory), self.keeper};
}

UnderWay submit(OrderedGroup& self, int kind, uintptr_t input, uintptr_t output, nb::object memory, int dtype, int op,
                uint64_t count, int root, int target, std::vector<uint64_t> counts,
                std::vector<uint64_t> receive_counts, double prescale, double postscale, double timeout, int device,
                uintptr_t stream) {
  Call call{.counts = std::move(counts), .receive_counts = std::move(receive_counts)};
  fill(call, self, kind, dtype, op, root, target, count, prescale, postscale, timeout);
  call.operation.device = device;
  call.operation.stream = reinterpret_cast<void*>(stream);
  return hand(self, std::move(memory), [&](void* context, horo_request** request) {
    return horo_group_submit(self.group.get(), &call.operation, reinterpret_cast<const void*>(input),
                             reinterpret_cast<void*>(output), &Notice::callback, context, request);
  });
}

UnderWay send(OrderedGroup& self, int to, uint64_t tag, uintptr_t address, size_t bytes, nb::object memory,
              double timeout) {
  return hand(self, std::move(memory), [&](void* context, horo_request** request) {
    return horo_message_send(self.engine, self.group.get(), to, tag, reinterpret_cast<const void*>(address), bytes,
                             timeout, &Notice::callback, context, request);
  });
}

UnderWay receive(OrderedGroup& self, int from, uint64_t tag, uintptr_t address, size_t bytes, nb::object memory,
                 double timeout) {
  return hand(self, std::move(memory), [&](void* context, horo_request** request) {
    return horo_message_receive(self.engine, self.group.get(), from, tag, reinterpret_cast<void*>(address), bytes,
                                timeout, &Notice::callback, context, request);
  });
}

/// On this thread: the shortest way for small operations, and deaf to signals.
void run(OrderedGroup& self, int kind, uintptr_t input, uintptr_t output, int dtype, int op, uint64_t count, int root,
         int target, std::vector<uint64_t> counts, std::vector<uint64_t> receive_counts, double prescale,
         double postscale, double timeout, int device, uintptr_t stream) {
  self.keeper->sweep();
  Call call{.counts = std::move(counts), .receive_counts = std::move(receive_counts)};
  fill(call, self, kind, dtype, op, root, target, count, prescale, postscale, timeout);
  call.operation.device = device;
  call.operation.stream = reinterpret_cast<void*>(stream);
  const nb::gil_scoped_release release;
  self.group.run(call.operation, reinterpret_cast<const void*>(input), reinterpret_cast<void*>(output));
}

OrderedGroup of_runtime(const nb::object& self, std::vector<int> ranks) {
  return make_group(nb::cast<Job&>(self).runtime, std::move(ranks), self);
}

}  // namespace

void bind_group(nb::module_& module, nb::class_<Job>& job) {
  nb::class_<CompletionsPlace>(module, "Completions",
                               "Requests that have ended, for the thread that tells Python of it.")
      .def(nb::init<>())
      .def(
          "take", [](CompletionsPlace& self, double seconds) { return self.completions->take(seconds); },
          nb::arg("seconds"), "Numbers of requests that have ended; none when the time is over or it was closed.")
      .def("close", [](CompletionsPlace& self) { self.completions->close(); });
  nb::class_<UnderWay>(module, "Request", "An ordered operation under way. Its memory lives until it is done.")
      .def("done", &UnderWay::done)
      .def("wait", &UnderWay::wait, nb::arg("seconds"), nb::arg("stream") = nb::none(),
           "False when it is not done by then, or a signal came; raises what it ended in. With a stream of its device: "
           "what is put there later comes after it, and it need not be done yet.")
      .def("source", &UnderWay::source, "Of a message that was received: the member that sent it; else -1.")
      .def(
          "tell",
          [](UnderWay& self, const CompletionsPlace& to, uint64_t number) { self.tell(to.completions, number); },
          nb::arg("completions"), nb::arg("number"), "Puts `number` there once it is done.");
  nb::class_<OrderedGroup>(module, "Group", "Ranks that make the same calls in the same order.")
      .def_prop_ro("rank", [](const OrderedGroup& self) { return self.group.rank(); })
      .def_prop_ro("size", [](const OrderedGroup& self) { return self.group.size(); })
      .def_ro("ranks", &OrderedGroup::ranks, "Of the job.")
      .def("transport", [](const OrderedGroup& self) { return self.group.transport(); })
      .def(
          "give_up", [](OrderedGroup& self, const std::string& why) { self.group.give_up(why); }, nb::arg("why"),
          nb::call_guard<nb::gil_scoped_release>(), "Ends the group, here and on the other members.")
      .def("send", &send, nb::arg("to"), nb::arg("tag"), nb::arg("address"), nb::arg("bytes"), nb::arg("memory").none(),
           nb::arg("timeout"),
           "Sends a message to a member, in no order with the operations; of an engine that opened messages.")
      .def("receive", &receive, nb::arg("from_"), nb::arg("tag"), nb::arg("address"), nb::arg("bytes"),
           nb::arg("memory").none(), nb::arg("timeout"), "Receives one from a member; -1: from whoever sends first.")
      .def("submit", &submit, nb::arg("kind"), nb::arg("input"), nb::arg("output"), nb::arg("memory").none(),
           nb::kw_only(), nb::arg("dtype") = static_cast<int>(HORO_BYTE), nb::arg("op") = static_cast<int>(HORO_SUM),
           nb::arg("count") = 0, nb::arg("root") = 0, nb::arg("target") = 0,
           nb::arg("counts") = std::vector<uint64_t>(), nb::arg("receive_counts") = std::vector<uint64_t>(),
           nb::arg("prescale") = 1.0, nb::arg("postscale") = 1.0, nb::arg("timeout") = 0.0, nb::arg("device") = -1,
           nb::arg("stream") = 0,
           "Queues an operation on addresses, as horo.h describes it. `memory` is kept until it is done. One that runs "
           "into its timeout ends the group.")
      .def("run", &run, nb::arg("kind"), nb::arg("input"), nb::arg("output"), nb::kw_only(),
           nb::arg("dtype") = static_cast<int>(HORO_BYTE), nb::arg("op") = static_cast<int>(HORO_SUM),
           nb::arg("count") = 0, nb::arg("root") = 0, nb::arg("target") = 0,
           nb::arg("counts") = std::vector<uint64_t>(), nb::arg("receive_counts") = std::vector<uint64_t>(),
           nb::arg("prescale") = 1.0, nb::arg("postscale") = 1.0, nb::arg("timeout") = 0.0, nb::arg("device") = -1,
           nb::arg("stream") = 0,
           "The same on this thread; returns when it is done. The shortest way, but Ctrl-C has to wait for it.");
  job.def("group", &of_runtime, nb::arg("ranks"),
          "An ordered group of these ranks (rising), beside the process sets; all of them call it in the same order.");
}

}  // namespace horo::python
