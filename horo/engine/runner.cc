#include "horo/engine/runner.h"

#include <algorithm>
#include <cctype>
#include <new>

#include "horo/base/text.h"
#include "horo/engine/fusion.h"
#include "horo/engine/runner_parts.h"
#include "horo/kernel/reduce.h"

namespace horo::engine {

using collective::Operation;

namespace {

constexpr std::align_val_t kAlignment{64};
constexpr uint64_t kApart = 16 << 20;

std::shared_ptr<std::byte> allocate(uint64_t bytes) {
  void* memory = ::operator new(std::max<uint64_t>(bytes, 1), kAlignment, std::nothrow);
  return {static_cast<std::byte*>(memory), [](std::byte* p) { ::operator delete(p, kAlignment); }};
}

/// An identity that is multiplied is none any more, so such reductions are scaled while they are packed.
bool scaled_while_packed(const Tensor& tensor) {
  const bool zero = tensor.reduction == Reduction::kSum || tensor.reduction == Reduction::kAverage;
  return tensor.prescale != 1.0 && !zero;
}

/// "SHM_ALLREDUCE"
std::string activity_name(std::string_view transport, collective::Kind kind) {
  std::string words = text(transport, "_", transport::name(kind));
  std::transform(words.begin(), words.end(), words.begin(), [](unsigned char c) { return std::toupper(c); });
  return words;
}

}  // namespace

std::vector<uint64_t> shares(uint64_t rows, int members) {
  const auto n = static_cast<uint64_t>(members);
  std::vector<uint64_t> shares(n, rows / n);
  for (uint64_t i = 0; i < rows % n; ++i) ++shares[i];
  return shares;
}

std::vector<Status> Runner::run(Work& work) { return *start(work, {}); }

std::optional<std::vector<Status>> Runner::start(Work& work, const Flying& flying) {
  std::vector<Status> outcomes(work.units.size());
  is_under_way_ = false;
  batch_ = work.number;
  auto& [pieces, owners, taken, overwritten, together, whose, places] = sorting_;
  pieces.clear();
  owners.clear();
  overwritten.assign(work.units.size(), false);
  for (size_t u = 0; u < work.units.size(); ++u) {
    const Handle& mine = work.submissions[u];
    for (size_t t = 0; t < work.units[u]->tensors.size(); ++t) {
      pieces.push_back(
          {&work.units[u]->tensors[t], mine ? &mine->calls()[t] : nullptr, mine ? &mine->result(t) : nullptr});
      owners.push_back(u);
    }
  }
  taken.assign(pieces.size(), false);
  for (size_t first = 0; first < pieces.size(); ++first) {
    if (taken[first]) continue;
    together.clear();
    whose.clear();
    places.clear();
    for (size_t i = first; i < pieces.size(); ++i) {
      if (taken[i] || (i != first && !fusible(*pieces[first].tensor, *pieces[i].tensor))) continue;
      taken[i] = true;
      together.push_back(pieces[i]);
      whose.push_back(owners[i]);
      places.push_back(static_cast<uint32_t>(i));
    }
    part_.clear();
    if (together.size() < pieces.size() && observation_.traced()) part_ = places;
    flying_ = flying.landed && together.size() == pieces.size() && !observation_.traced() ? &flying : nullptr;
    const Status status = run_pieces(together);
    flying_ = nullptr;
    if (is_under_way_) return std::nullopt;
    for (size_t i = 0; i < together.size(); ++i) {
      if (outcomes[whose[i]].ok()) outcomes[whose[i]] = status;
      const Piece& piece = together[i];
      if (status.ok() && piece.call != nullptr && piece.call->input == piece.call->output) overwritten[whose[i]] = true;
    }
  }
  for (size_t u = 0; u < outcomes.size(); ++u) {
    if (!outcomes[u].ok() && overwritten[u]) outcomes[u] = outcomes[u].with_contents_lost();
  }
  return outcomes;
}

Status Runner::begin_moving(const Pieces& pieces) {
  int device = -1;
  if (pieces[0].tensor->place == Place::kDevice) {
    for (const Piece& piece : pieces) {
      if (piece.call != nullptr) last_device_ = piece.call->where.device;
    }
    device = last_device_;
  }
  Status status = mover_.use(device);
  // What is on the host between two batches on a device waits for neither.
  if (status.ok() && mover_.on_device() && before_ != nullptr) {
    status = mover_.wait(std::exchange(before_, nullptr));
  }
  for (const Piece& piece : pieces) {
    if (status.ok() && piece.call != nullptr) status = mover_.wait(piece.call->where.ready);
  }
  if (!status.ok()) carrier_.give_up(status);
  return status;
}

Status Runner::run_pieces(Pieces& pieces) {
  HORO_TRY(begin_moving(pieces));
  const Tensor& first = *pieces[0].tensor;
  const bool odd = first.reduction == Reduction::kAdasum || scaled_while_packed(first);
  if (mover_.on_device() && first.kind == Kind::kAllreduce && odd) return through_host(pieces);
  return dispatch(pieces);
}

Status Runner::through_host(Pieces& pieces) {
  std::vector<Tensor> tensors;
  std::vector<Call> calls(pieces.size());
  std::vector<TensorResult> results(pieces.size());
  for (const Piece& piece : pieces) {
    tensors.push_back(*piece.tensor);
    tensors.back().place = Place::kHost;
  }
  Pieces on_host;
  std::vector<std::shared_ptr<std::byte>> memory;
  Status status;
  for (size_t p = 0; p < pieces.size(); ++p) {
    HORO_TRY(make_output(pieces[p], pieces[p].tensor->shape));
    const bool joined = pieces[p].call == nullptr;
    on_host.push_back({&tensors[p], joined ? nullptr : &calls[p], joined ? nullptr : &results[p]});
    if (joined) continue;
    memory.push_back(allocate(tensors[p].bytes()));
    calls[p].input = calls[p].output = memory.back().get();
    if (status.ok()) status = mover_.transfer(memory.back().get(), pieces[p].call->input, tensors[p].bytes());
  }
  const int device = mover_.device();
  if (!status.ok()) carrier_.give_up(status);
  HORO_TRY(status);
  HORO_TRY(mover_.use(-1));
  const Status outcome = dispatch(on_host);
  HORO_TRY(mover_.use(device));
  HORO_TRY(outcome);
  for (size_t p = 0; p < pieces.size(); ++p) {
    if (pieces[p].call == nullptr) continue;
    HORO_TRY(mover_.transfer(pieces[p].output->memory, results[p].memory, tensors[p].bytes()));
  }
  return {};
}

Status Runner::dispatch(Pieces& pieces) {
  switch (pieces[0].tensor->kind) {
    case Kind::kAllreduce:
      return pieces[0].tensor->reduction == Reduction::kAdasum ? adasum(pieces) : allreduce(pieces);
    case Kind::kBroadcast:
      return broadcast(pieces);
    case Kind::kAllgather:
      return allgather(pieces);
    case Kind::kReduceScatter:
      return reducescatter(pieces);
    case Kind::kAlltoall:
      return alltoall(pieces[0]);
    default:
      return carry(Operation(), nullptr, nullptr);  // A barrier.
  }
}

Status Runner::meet() {
  Operation operation;
  operation.kind = collective::Kind::kBarrier;
  return carrier_.run(operation, nullptr, nullptr);
}

Status Runner::carry(const Operation& operation, const std::byte* in, std::byte* out, const device::Sequel& sequel) {
  if (mover_.on_device() && !operation.where.on_device()) {
    Operation here = operation;
    here.where.device = mover_.device();
    return carry(here, in, out, sequel);
  }
  if (observation_.traced()) return carry_observed(operation, in, out);
  return carrier_.run(operation, in, out, sequel);
}

Status Runner::carry_last(const Operation& operation, const std::byte* in, std::byte* out,
                          const device::Sequel& sequel) {
  if (flying_ == nullptr || !operation.where.on_device()) return carry(operation, in, out, sequel);
  device::Sequel all = sequel;
  all.promise = [this](const device::EventHandle& results) {
    before_ = results;
    if (flying_->promised) flying_->promised(results);
  };
  const std::optional<Status> status = carrier_.start(operation, in, out, all, flying_->landed);
  is_under_way_ = !status;
  return status.value_or(Status());
}

Status Runner::carry_alone(Operation operation, const Piece& piece, const std::byte* in) {
  operation.where = piece.call->where;
  return carry_last(operation, in, piece.output->memory);
}

Status Runner::moved() {
  Status status = mover_.flush();
  if (!status.ok()) carrier_.give_up(status);
  return status;
}

Status Runner::packed(Operation& operation) {
  if (!mover_.on_device()) return moved();
  Status status = mover_.start();
  if (status.ok()) {
    Result<device::EventHandle> ready = mover_.started();
    status = ready.status();
    if (ready.ok()) operation.where = {mover_.device(), *ready};
  }
  if (!status.ok()) carrier_.give_up(status);
  return status;
}

Status Runner::pack_summand(const Piece& piece, std::byte* to) {
  const Tensor& tensor = *piece.tensor;
  if (piece.call == nullptr && mover_.on_device()) {
    const std::shared_ptr<std::byte> identity = allocate(tensor.bytes());
    fill_identity(identity.get(), tensor.count(), tensor.dtype, tensor.reduction);
    Status status = mover_.transfer(to, identity.get(), tensor.bytes());
    if (!status.ok()) carrier_.give_up(status);
    return status;
  }
  if (piece.call == nullptr) {
    fill_identity(to, tensor.count(), tensor.dtype, tensor.reduction);
  } else if (!scaled_while_packed(tensor)) {
    mover_.add(to, piece.call->input, tensor.bytes());
  } else if (kernel::ScaleFn scale = kernel::scale(tensor.dtype)) {
    const kernel::DefaultFloatMode mode;
    scale(to, piece.call->input, tensor.count(), {tensor.prescale, 1});
  }
  return {};
}

Status Runner::carry_observed(const Operation& operation, const std::byte* in, std::byte* out) {
  const std::string name = activity_name(carrier_.transport(), operation.kind);
  const Observation::Doing doing{batch_, part_, name, true};
  observation_.begin(doing);
  Status status = carrier_.run(operation, in, out);
  observation_.end(doing, carrier_.algorithm());
  return status;
}

// The others run the operation whether or not there is memory for its result here.
Status Runner::make_output(Piece& piece, std::vector<int64_t> shape) {
  if (piece.call == nullptr) return {};
  TensorResult& output = *piece.output;
  output.shape = std::move(shape);
  output.memory = piece.call->output;
  if (output.memory != nullptr) return {};
  const uint64_t bytes = bytes_of(output.shape, piece.tensor->dtype);
  Status status;
  if (piece.call->allocate) {
    Result<std::byte*> memory = piece.call->allocate(output.shape);
    if (memory.ok()) output.memory = *memory;
    status = memory.status();
  } else {
    Result<std::shared_ptr<std::byte>> made = mover_.on_device() ? mover_.lend(bytes) : allocate(bytes);
    if (made.ok()) output.owner = *made;
    status = made.status();
    output.memory = output.owner.get();
  }
  if (output.memory != nullptr || (bytes == 0 && status.ok())) return {};
  if (status.ok()) status = Status(Code::kUnavailable, "no memory");
  status = status.prefixed(text("no room for the result of tensor '", piece.tensor->name, "', ", bytes_text(bytes)));
  carrier_.give_up(status);
  return status;
}

Result<std::span<std::byte>> Runner::room(int slot, uint64_t bytes) {
  Result<std::span<std::byte>> memory =
      mover_.on_device() ? mover_.room(static_cast<size_t>(slot), bytes) : scratch_.get(slot, bytes);
  if (memory.ok()) return memory;
  const Status why = memory.status().prefixed(text("no room to put tensors together, ", bytes_text(bytes)));
  carrier_.give_up(why);
  return why;
}

Status Runner::allreduce(Pieces& pieces) {
  Operation operation = reduction_of(collective::Kind::kAllreduce, *pieces[0].tensor);
  for (Piece& piece : pieces) HORO_TRY(make_output(piece, piece.tensor->shape));
  if (scaled_while_packed(*pieces[0].tensor)) operation.prescale = 1.0;
  if (pieces.size() > 1 || pieces[0].call == nullptr || scaled_while_packed(*pieces[0].tensor)) {
    return allreduce_together(pieces, operation);
  }
  operation.count = pieces[0].tensor->count();
  return carry_alone(operation, pieces[0], pieces[0].call->input);
}

Status Runner::allreduce_together(Pieces& pieces, const Operation& terms) {
  Operation operation = terms;
  uint64_t bytes = 0;
  // Alone it has the size that it has where it is not packed: on ranks that have not joined.
  const auto room_of = [&](const Piece& piece) {
    return pieces.size() == 1 ? piece.tensor->bytes() : mover_.aligned(piece.tensor->bytes());
  };
  for (const Piece& piece : pieces) bytes += room_of(piece);
  operation.count = bytes / size_of(operation.dtype);
  HORO_ASSIGN(std::span<std::byte> buffer, room(0, bytes));
  std::byte* at = buffer.data();
  {
    const Activity packing(observation_, this->packing());
    for (const Piece& piece : pieces) {
      HORO_TRY(pack_summand(piece, at));
      at += room_of(piece);
    }
    HORO_TRY(packed(operation));
  }
  // On a device the ranks save a round where nobody writes what others read; from some size on the bytes cost more.
  std::byte* result = buffer.data();
  if (mover_.on_device() && bytes <= kApart) {
    HORO_ASSIGN(std::span<std::byte> apart, room(1, bytes));
    result = apart.data();
  }
  bool unpacks = false;  // In the queue of the operation.
  const auto add_results = [&] {
    at = result;
    for (const Piece& piece : pieces) {
      if (piece.call != nullptr) mover_.add(piece.output->memory, at, piece.tensor->bytes());
      at += room_of(piece);
    }
  };
  const auto unpack = [&](device::Queue& queue) {
    unpacks = true;
    add_results();
    return mover_.start_in(queue);
  };
  HORO_TRY(carry_last(operation, buffer.data(), result, {.steps = unpack}));
  if (unpacks) return {};
  const Activity unpacking(observation_, this->unpacking());
  add_results();
  return moved();
}

Status Runner::broadcast(Pieces& pieces) {
  Operation operation = of_bytes(collective::Kind::kBroadcast);
  operation.root = pieces[0].tensor->root;
  const bool root = carrier_.member() == operation.root;
  for (Piece& piece : pieces) {
    HORO_TRY(make_output(piece, piece.tensor->shape));
    operation.count += pieces.size() == 1 ? piece.tensor->bytes() : mover_.aligned(piece.tensor->bytes());
  }
  if (pieces.size() == 1) return carry_alone(operation, pieces[0], root ? pieces[0].call->input : nullptr);
  HORO_ASSIGN(std::span<std::byte> buffer, room(0, operation.count));
  std::byte* at = buffer.data();
  if (root) {
    const Activity packing(observation_, this->packing());
    for (const Piece& piece : pieces) {
      mover_.add(at, piece.call->input, piece.tensor->bytes());
      at += mover_.aligned(piece.tensor->bytes());
    }
    HORO_TRY(moved());
  }
  HORO_TRY(carry(operation, buffer.data(), buffer.data()));
  const Activity unpacking(observation_, this->unpacking());
  at = buffer.data();
  for (const Piece& piece : pieces) {
    const std::byte* from = root ? piece.call->input : at;
    if (from != piece.output->memory) mover_.add(piece.output->memory, from, piece.tensor->bytes());
    at += mover_.aligned(piece.tensor->bytes());
  }
  return moved();
}

}  // namespace horo::engine
