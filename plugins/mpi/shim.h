// MPI through one family of libraries.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <vector>

#include "plugins/mpi/mpi.h"
#include "plugins/mpi/reductions.h"

#include "horo/base/text.h"

namespace horo::mpi {

/// One per process. Everything that its communicators share.
template <class Abi>
struct Shared {
  Functions<Abi> functions;
  Constants<Abi> constants;
  Reductions<Abi> reductions{functions, constants};
  void (*on_end)() = nullptr;
  pid_t process = 0;

  Status check(int code, std::string_view what) const {
    if (code == 0) return {};
    std::string words(kMostText, '\0');
    int length = 0;
    if (functions.error_string(code, words.data(), &length) != 0) length = 0;
    words.resize(static_cast<size_t>(std::clamp(length, 0, static_cast<int>(kMostText))));
    return Status(Code::kInternal, text(what, " failed: ", words.empty() ? text("code ", code) : words));
  }

  bool is_over() const {
    int over = 0;
    return functions.finalized(&over) != 0 || over != 0;
  }
};

/// Counts and places of all members as MPI's v-functions want them.
class Layout {
 public:
  static Result<Layout> of(const uint64_t* counts, int size) {
    Layout layout;
    uint64_t place = 0;
    for (int i = 0; i < size; ++i) {
      layout.counts_.push_back(static_cast<int>(counts[i]));
      layout.places_.push_back(static_cast<int>(place));
      place += counts[i];
    }
    if (place <= static_cast<uint64_t>(std::numeric_limits<int>::max())) return layout;
    return Status(Code::kInvalidArgument, text("MPI counts up to ", std::numeric_limits<int>::max(),
                                               " elements in one operation of this kind, not ", place,
                                               "; split it, or use horo's own operations"));
  }
  const int* counts() const { return counts_.data(); }
  const int* places() const { return places_.data(); }
  int count(int member) const { return counts_[static_cast<size_t>(member)]; }

 private:
  std::vector<int> counts_, places_;
};

template <class Abi>
class ShimCommunicator : public horo_communicator {
 public:
  using Comm = typename Abi::Comm;
  ShimCommunicator(Shared<Abi>& shared, Comm comm) : shared_(shared), comm_(comm) {
    shared_.functions.comm_set_errhandler(comm_, shared_.constants.errors_return);
    shared_.functions.comm_rank(comm_, &rank_);
    shared_.functions.comm_size(comm_, &size_);
  }
  ~ShimCommunicator() override {
    if (getpid() == shared_.process && !shared_.is_over()) shared_.functions.comm_free(&comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status broadcast(std::span<std::byte> bytes, int root) override {
    return in_pieces(bytes.size(), 1, [&](uint64_t from, int count) {
      return check(shared_.functions.bcast(bytes.data() + from, count, shared_.constants.byte, root, comm_),
                   "MPI_Bcast");
    });
  }

  Result<int> smallest(int mine) override {
    int found = 0;
    HORO_TRY(
        check(shared_.functions.allreduce(&mine, &found, 1, shared_.constants.integer, shared_.constants.min, comm_),
              "MPI_Allreduce"));
    return found;
  }

  Result<std::unique_ptr<horo_communicator>> part(std::span<const int> members, int tag) override {
    typename Abi::Group all{}, some{};
    HORO_TRY(check(shared_.functions.comm_group(comm_, &all), "MPI_Comm_group"));
    const int count = static_cast<int>(members.size());
    Status made = check(shared_.functions.group_incl(all, count, members.data(), &some), "MPI_Group_incl");
    Comm comm{};
    if (made.ok()) {
      made = check(shared_.functions.comm_create_group(comm_, some, tag, &comm), "MPI_Comm_create_group");
      shared_.functions.group_free(&some);
    }
    shared_.functions.group_free(&all);
    if (!made.ok()) return made;
    return std::unique_ptr<horo_communicator>(std::make_unique<ShimCommunicator>(shared_, comm));
  }

  Status run(const horo_operation& operation, const std::byte* in, std::byte* out) override {
    switch (operation.kind) {
      case HORO_BARRIER:
        return check(shared_.functions.barrier(comm_), "MPI_Barrier");
      case HORO_ALLREDUCE:
      case HORO_REDUCE:
        return reduce(operation, in, out);
      case HORO_REDUCESCATTER:
        return reduce_scatter(operation, in, out);
      case HORO_BROADCAST:
        return broadcast_elements(operation, in, out);
      case HORO_SENDRECV:
        return send_receive(operation, in, out);
      default:
        return move(operation, in, out);
    }
  }

 private:
  Status check(int code, std::string_view what) const { return shared_.check(code, what); }

  /// MPI counts in int; and pieces have to be the same on all members.
  template <class Call>
  static Status in_pieces(uint64_t count, uint64_t width, Call call) {
    constexpr uint64_t kPiece = 1 << 30;
    uint64_t from = 0;
    do {
      const uint64_t now = std::min(kPiece, count - from);
      HORO_TRY(call(from * width, static_cast<int>(now)));
      from += now;
    } while (from < count);
    return {};
  }

  Status reduce(const horo_operation& operation, const std::byte* in, std::byte* out) {
    HORO_ASSIGN(const Reducing<Abi> how, shared_.reductions.find(operation.dtype, operation.op));
    const bool rooted = operation.kind == HORO_REDUCE;
    const bool receives = !rooted || operation.root == rank_;
    return in_pieces(operation.count, horo_dtype_size(operation.dtype), [&](uint64_t from, int count) {
      const void* send = receives && in == out ? Abi::in_place() : in + from;
      std::byte* into = out == nullptr ? nullptr : out + from;
      if (!rooted)
        return check(shared_.functions.allreduce(send, into, count, how.type, how.op, comm_), "MPI_Allreduce");
      return check(shared_.functions.reduce(send, into, count, how.type, how.op, operation.root, comm_), "MPI_Reduce");
    });
  }

  Status reduce_scatter(const horo_operation& operation, const std::byte* in, std::byte* out) {
    HORO_ASSIGN(const Reducing<Abi> how, shared_.reductions.find(operation.dtype, operation.op));
    HORO_ASSIGN(const Layout layout, Layout::of(operation.counts, size_));
    return check(shared_.functions.reduce_scatter(in, out, layout.counts(), how.type, how.op, comm_),
                 "MPI_Reduce_scatter");
  }

  Status broadcast_elements(const horo_operation& operation, const std::byte* in, std::byte* out) {
    const uint64_t bytes = operation.count * horo_dtype_size(operation.dtype);
    if (rank_ == operation.root && out != nullptr && in != out) std::copy_n(in, bytes, out);
    auto* memory = out != nullptr ? out : const_cast<std::byte*>(in);  // The root's, which is only read.
    return broadcast({memory, bytes}, operation.root);
  }

  Status send_receive(const horo_operation& operation, const std::byte* in, std::byte* out) {
    const uint64_t bytes = operation.count * horo_dtype_size(operation.dtype);
    const int from = operation.root, to = operation.target;
    if (from == to) {
      if (rank_ == from && in != out) std::copy_n(in, bytes, out);
      return {};
    }
    if (rank_ != from && rank_ != to) return {};
    const auto type = shared_.constants.byte;
    return in_pieces(bytes, 1, [&](uint64_t at, int count) {
      if (rank_ == from) return check(shared_.functions.send(in + at, count, type, to, 0, comm_), "MPI_Send");
      void* ignore = Abi::status_ignore();
      return check(shared_.functions.recv(out + at, count, type, from, 0, comm_, ignore), "MPI_Recv");
    });
  }

  /// Bytes of different members that only change their places.
  Status move(const horo_operation& operation, const std::byte* in, std::byte* out) {
    const uint64_t width = horo_dtype_size(operation.dtype);
    const auto bytes_of = [&](const uint64_t* counts) {
      std::vector<uint64_t> bytes(static_cast<size_t>(size_));
      std::transform(counts, counts + size_, bytes.begin(), [&](uint64_t count) { return count * width; });
      return Layout::of(bytes.data(), size_);
    };
    HORO_ASSIGN(const Layout layout, bytes_of(operation.counts));
    const Functions<Abi>& f = shared_.functions;
    const auto type = shared_.constants.byte;
    const int own = layout.count(rank_);
    switch (operation.kind) {
      case HORO_ALLGATHER:
        return check(f.allgatherv(in, own, type, out, layout.counts(), layout.places(), type, comm_), "MPI_Allgatherv");
      case HORO_GATHER:
        return check(f.gatherv(in, own, type, out, layout.counts(), layout.places(), type, operation.root, comm_),
                     "MPI_Gatherv");
      case HORO_SCATTER:
        return check(f.scatterv(in, layout.counts(), layout.places(), type, out, own, type, operation.root, comm_),
                     "MPI_Scatterv");
      case HORO_ALLTOALL: {
        HORO_ASSIGN(const Layout receives, bytes_of(operation.receive_counts));
        return check(f.alltoallv(in, layout.counts(), layout.places(), type, out, receives.counts(), receives.places(),
                                 type, comm_),
                     "MPI_Alltoallv");
      }
      default:
        return Status(Code::kInvalidArgument, "MPI has no such operation");
    }
  }

  Shared<Abi>& shared_;
  Comm comm_;
  int rank_ = 0;
  int size_ = 1;
};

template <class Abi>
class Shim : public Mpi {
 public:
  static Result<std::unique_ptr<Mpi>> start(const DynamicLibrary& library, const Starting& starting) {
    std::unique_ptr<Shim> shim(new Shim);
    Shared<Abi>& shared = *shim->shared_;
    HORO_TRY(shared.functions.bind(library));
    HORO_TRY(Abi::bind(library, shared.functions, shared.constants));
    shared.on_end = starting.on_end;
    shared.process = getpid();
    shim->name_ = library_version(library);
    HORO_TRY(shim->initialise(starting.threads));
    HORO_TRY(shim->watch_end());
    return std::unique_ptr<Mpi>(std::move(shim));
  }

  const std::string& name() const override { return name_; }
  bool any_thread() const override { return level_ >= kThreadMultiple; }

  Result<std::unique_ptr<horo_communicator>> open(const int* handle, std::span<const int> ranks) override {
    Shared<Abi>& shared = *shared_;
    if (shared.is_over()) return Status(Code::kStopped, "MPI was finalised; ranks cannot meet through it any more");
    const auto given = handle == nullptr ? shared.constants.world : shared.functions.comm_f2c(*handle);
    typename Abi::Comm own{};
    if (!ranks.empty()) return open_some(given, ranks);
    HORO_TRY(shared.check(shared.functions.comm_dup(given, &own), "MPI_Comm_dup"));
    return std::unique_ptr<horo_communicator>(std::make_unique<ShimCommunicator<Abi>>(shared, own));
  }

 private:
  Shim() : shared_(new Shared<Abi>) {}

  /// Called by the members of the list alone.
  Result<std::unique_ptr<horo_communicator>> open_some(typename Abi::Comm given, std::span<const int> ranks) {
    Shared<Abi>& shared = *shared_;
    int own = 0, size = 0;
    shared.functions.comm_rank(given, &own);
    shared.functions.comm_size(given, &size);
    for (const int rank : ranks) {
      if (rank < 0 || rank >= size || std::ranges::count(ranks, rank) > 1) {
        return Status(Code::kInvalidArgument, text("rank ", rank, " of the job's list is there twice, or does not ",
                                                   "exist among ", size, " processes"));
      }
    }
    if (std::ranges::find(ranks, own) == ranks.end()) {
      return Status(Code::kInvalidArgument,
                    text("process ", own, " is not in the list of ranks that it starts a job with: ", ranks_text(ranks),
                         "; only those call init() with it"));
    }
    typename Abi::Group all{}, some{};
    typename Abi::Comm comm{};
    HORO_TRY(shared.check(shared.functions.comm_group(given, &all), "MPI_Comm_group"));
    HORO_TRY(shared.check(shared.functions.group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some),
                          "MPI_Group_incl"));
    HORO_TRY(
        shared.check(shared.functions.comm_create_group(given, some, ranks.front(), &comm), "MPI_Comm_create_group"));
    shared.functions.group_free(&some);
    shared.functions.group_free(&all);
    return std::unique_ptr<horo_communicator>(std::make_unique<ShimCommunicator<Abi>>(shared, comm));
  }

  Status initialise(bool threads) {
    Functions<Abi>& f = shared_->functions;
    int is_there = 0;
    f.initialized(&is_there);
    if (is_there != 0) return shared_->check(f.query_thread(&level_), "MPI_Query_thread");
    const int wanted = threads ? kThreadMultiple : kThreadSingle;
    HORO_TRY(shared_->check(f.init_thread(nullptr, nullptr, wanted, &level_), "MPI_Init_thread"));
    on_exit(&finish, shared_);
    return {};
  }

  /// Whoever begins it ends it. After an error it is not ended: its launcher then ends all other processes, which would
  /// else wait here for ever.
  static void finish(int status, void* context) {
    const auto& shared = *static_cast<Shared<Abi>*>(context);
    if (status == 0 && getpid() == shared.process && !shared.is_over()) shared.functions.finalize();
  }

  /// An attribute of MPI_COMM_SELF is deleted as the first thing when MPI ends.
  Status watch_end() {
    Functions<Abi>& f = shared_->functions;
    int key = 0;
    HORO_TRY(shared_->check(f.comm_create_keyval(&copy_nothing, &ending, &key, shared_), "MPI_Comm_create_keyval"));
    return shared_->check(f.comm_set_attr(shared_->constants.self, key, nullptr), "MPI_Comm_set_attr");
  }

  static int copy_nothing(typename Abi::Comm, int, void*, void*, void*, int* flag) {
    *flag = 0;
    return 0;
  }

  static int ending(typename Abi::Comm, int, void*, void* context) {
    static_cast<Shared<Abi>*>(context)->on_end();
    return 0;
  }

  // Never freed: handlers of the process's end use it.
  Shared<Abi>* const shared_;
  std::string name_;
  int level_ = 0;
};

}  // namespace horo::mpi
