#include "horo/engine/runner.h"

#include <algorithm>
#include <cctype>
#include <new>
#include <numeric>

#include "horo/base/text.h"
#include "horo/engine/fusion.h"
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

uint64_t bytes_of(const std::vector<int64_t>& shape, DType dtype) {
  uint64_t bytes = size_of(dtype);
  for (int64_t extent : shape) bytes *= static_cast<uint64_t>(extent);
  return bytes;
}

uint64_t row_bytes(const Tensor& tensor) {
  uint64_t bytes = size_of(tensor.dtype);
  for (size_t i = 1; i < tensor.shape.size(); ++i) bytes *= static_cast<uint64_t>(tensor.shape[i]);
  return bytes;
}

std::vector<int64_t> with_rows(const Tensor& tensor, uint64_t rows) {
  std::vector<int64_t> shape = tensor.shape;
  shape[0] = static_cast<int64_t>(rows);
  return shape;
}

uint64_t total(const std::vector<uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), uint64_t{0});
}

Operation reduction_of(collective::Kind kind, const Tensor& tensor) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = tensor.dtype;
  operation.op = static_cast<ReduceOp>(tensor.reduction);
  operation.prescale = tensor.prescale;
  operation.postscale = tensor.postscale;
  return operation;
}

Operation of_bytes(collective::Kind kind) {
  Operation operation;
  operation.kind = kind;
  operation.dtype = DType::kByte;
  return operation;
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

std::vector<Status> Runner::run(Work& work) {
  std::vector<Status> outcomes(work.units.size());
  batch_ = work.number;
  Pieces pieces;
  std::vector<size_t> owners;
  for (size_t u = 0; u < work.units.size(); ++u) {
    const Handle& mine = work.submissions[u];
    for (size_t t = 0; t < work.units[u]->tensors.size(); ++t) {
      pieces.push_back(
          {&work.units[u]->tensors[t], mine ? &mine->calls()[t] : nullptr, mine ? &mine->result(t) : nullptr});
      owners.push_back(u);
    }
  }
  std::vector<bool> taken(pieces.size(), false);
  for (size_t first = 0; first < pieces.size(); ++first) {
    if (taken[first]) continue;
    Pieces together;
    std::vector<size_t> whose;
    std::vector<uint32_t> places;
    for (size_t i = first; i < pieces.size(); ++i) {
      if (taken[i] || (i != first && !fusible(*pieces[first].tensor, *pieces[i].tensor))) continue;
      taken[i] = true;
      together.push_back(pieces[i]);
      whose.push_back(owners[i]);
      places.push_back(static_cast<uint32_t>(i));
    }
    part_.clear();
    if (together.size() < pieces.size() && observation_.traced()) part_ = std::move(places);
    const Status status = run_pieces(together);
    for (size_t owner : whose) {
      if (outcomes[owner].ok()) outcomes[owner] = status;
    }
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

Status Runner::carry(const Operation& operation, const std::byte* in, std::byte* out) {
  if (mover_.on_device() && !operation.where.on_device()) {
    Operation here = operation;
    here.where.device = mover_.device();
    return carry(here, in, out);
  }
  if (observation_.traced()) return carry_observed(operation, in, out);
  return carrier_.run(operation, in, out);
}

Status Runner::carry_alone(Operation operation, const Piece& piece, const std::byte* in) {
  operation.where = piece.call->where;
  return carry(operation, in, piece.output->memory);
}

Status Runner::moved() {
  Status status = mover_.flush();
  if (!status.ok()) carrier_.give_up(status);
  return status;
}

Status Runner::pack_summand(const Piece& piece, std::byte* to) {
  const Tensor& tensor = *piece.tensor;
  if (piece.call == nullptr && mover_.on_device()) {
    const std::shared_ptr<std::byte> identity = allocate(tensor.bytes());
    fill_identity(identity.get(), tensor.count(), tensor.dtype, tensor.reduction);
    return mover_.transfer(to, identity.get(), tensor.bytes());
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
    HORO_TRY(moved());
  }
  // On a device the ranks save a round where nobody writes what others read; from some size on the bytes cost more.
  std::byte* result = buffer.data();
  if (mover_.on_device() && bytes <= kApart) {
    HORO_ASSIGN(std::span<std::byte> apart, room(1, bytes));
    result = apart.data();
  }
  HORO_TRY(carry(operation, buffer.data(), result));
  const Activity unpacking(observation_, this->unpacking());
  at = result;
  for (const Piece& piece : pieces) {
    if (piece.call != nullptr) mover_.add(piece.output->memory, at, piece.tensor->bytes());
    at += room_of(piece);
  }
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

// How many rows everybody has is exchanged each time, so that it may change from step to step without being agreed
// anew.
Status Runner::allgather(Pieces& pieces) {
  const auto members = static_cast<size_t>(carrier_.size());
  std::vector<uint64_t> mine, rows(pieces.size() * members);
  for (const Piece& piece : pieces) mine.push_back(static_cast<uint64_t>(piece.call->tensor.shape[0]));
  Operation sizes;
  sizes.kind = collective::Kind::kAllgather;
  sizes.dtype = DType::kU64;
  sizes.counts.assign(members, pieces.size());
  HORO_TRY(
      carrier_.run(sizes, reinterpret_cast<const std::byte*>(mine.data()), reinterpret_cast<std::byte*>(rows.data())));
  for (size_t p = 0; p < pieces.size(); ++p) {
    std::vector<uint64_t>& received = pieces[p].output->received_splits;
    for (size_t m = 0; m < members; ++m) received.push_back(rows[m * pieces.size() + p]);
    HORO_TRY(make_output(pieces[p], with_rows(pieces[p].call->tensor, total(received))));
  }
  if (pieces.size() > 1) return allgather_together(pieces, rows);
  Operation operation = of_bytes(collective::Kind::kAllgather);
  for (uint64_t count : rows) operation.counts.push_back(count * row_bytes(*pieces[0].tensor));
  return carry_alone(operation, pieces[0], pieces[0].call->input);
}

Status Runner::allgather_together(Pieces& pieces, const std::vector<uint64_t>& rows) {
  const auto members = static_cast<size_t>(carrier_.size());
  Operation operation = of_bytes(collective::Kind::kAllgather);
  const auto bytes = [&](size_t member, size_t piece) {
    return rows[member * pieces.size() + piece] * row_bytes(*pieces[piece].tensor);
  };
  for (size_t m = 0; m < members; ++m) {
    uint64_t sum = 0;
    for (size_t p = 0; p < pieces.size(); ++p) sum += bytes(m, p);
    operation.counts.push_back(sum);
  }
  const auto self = static_cast<size_t>(carrier_.member());
  HORO_ASSIGN(std::span<std::byte> given, room(0, operation.counts[self]));
  HORO_ASSIGN(std::span<std::byte> gathered, room(1, total(operation.counts)));
  std::byte* to = given.data();
  {
    const Activity packing(observation_, this->packing());
    for (size_t p = 0; p < pieces.size(); ++p) {
      mover_.add(to, pieces[p].call->input, bytes(self, p));
      to += bytes(self, p);
    }
    HORO_TRY(moved());
  }
  HORO_TRY(carry(operation, given.data(), gathered.data()));
  const Activity unpacking(observation_, this->unpacking());
  std::vector<uint64_t> filled(pieces.size(), 0);
  const std::byte* from = gathered.data();
  for (size_t m = 0; m < members; ++m) {
    for (size_t p = 0; p < pieces.size(); ++p) {
      mover_.add(pieces[p].output->memory + filled[p], from, bytes(m, p));
      filled[p] += bytes(m, p);
      from += bytes(m, p);
    }
  }
  return moved();
}

Status Runner::alltoall(Piece& piece) {
  const auto members = static_cast<size_t>(carrier_.size());
  const uint64_t row = row_bytes(*piece.tensor);
  std::vector<uint64_t> splits = piece.call->splits;
  if (splits.empty()) splits.assign(members, static_cast<uint64_t>(piece.call->tensor.shape[0]) / members);
  std::vector<uint64_t> received(members);
  Operation sizes;
  sizes.kind = collective::Kind::kAlltoall;
  sizes.dtype = DType::kU64;
  sizes.counts.assign(members, 1);
  sizes.receive_counts.assign(members, 1);
  HORO_TRY(carrier_.run(sizes, reinterpret_cast<const std::byte*>(splits.data()),
                        reinterpret_cast<std::byte*>(received.data())));
  HORO_TRY(make_output(piece, with_rows(piece.call->tensor, total(received))));
  piece.output->received_splits = received;
  Operation operation = of_bytes(collective::Kind::kAlltoall);
  for (uint64_t rows : splits) operation.counts.push_back(rows * row);
  for (uint64_t rows : received) operation.receive_counts.push_back(rows * row);
  return carry_alone(operation, piece, piece.call->input);
}

Status Runner::reducescatter(Pieces& pieces) {
  const auto self = static_cast<size_t>(carrier_.member());
  Operation operation = reduction_of(collective::Kind::kReduceScatter, *pieces[0].tensor);
  operation.counts.assign(static_cast<size_t>(carrier_.size()), 0);
  for (Piece& piece : pieces) {
    const std::vector<uint64_t> rows = shares(static_cast<uint64_t>(piece.tensor->shape[0]), carrier_.size());
    for (size_t m = 0; m < rows.size(); ++m) {
      operation.counts[m] += rows[m] * row_bytes(*piece.tensor) / size_of(piece.tensor->dtype);
    }
    HORO_TRY(make_output(piece, with_rows(*piece.tensor, rows[self])));
  }
  if (pieces.size() > 1) return reducescatter_together(pieces, operation);
  return carry_alone(operation, pieces[0], pieces[0].call->input);
}

// What goes to a member lies together: member 0's rows of every tensor, then member 1's, ...
Status Runner::reducescatter_together(Pieces& pieces, const Operation& operation) {
  const size_t element = size_of(operation.dtype);
  const auto self = static_cast<size_t>(carrier_.member());
  HORO_ASSIGN(std::span<std::byte> given, room(0, total(operation.counts) * element));
  HORO_ASSIGN(std::span<std::byte> result, room(1, operation.counts[self] * element));
  std::vector<uint64_t> taken(pieces.size(), 0);
  std::byte* to = given.data();
  {
    const Activity packing(observation_, this->packing());
    for (int m = 0; m < carrier_.size(); ++m) {
      for (size_t p = 0; p < pieces.size(); ++p) {
        const Tensor& tensor = *pieces[p].tensor;
        const uint64_t rows = shares(static_cast<uint64_t>(tensor.shape[0]), carrier_.size())[static_cast<size_t>(m)];
        mover_.add(to, pieces[p].call->input + taken[p], rows * row_bytes(tensor));
        taken[p] += rows * row_bytes(tensor);
        to += rows * row_bytes(tensor);
      }
    }
    HORO_TRY(moved());
  }
  HORO_TRY(carry(operation, given.data(), result.data()));
  const Activity unpacking(observation_, this->unpacking());
  const std::byte* from = result.data();
  for (const Piece& piece : pieces) {
    const uint64_t bytes = bytes_of(piece.output->shape, piece.tensor->dtype);
    mover_.add(piece.output->memory, from, bytes);
    from += bytes;
  }
  return moved();
}

}  // namespace horo::engine
