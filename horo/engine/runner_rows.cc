// Operations whose results have other rows than their inputs.
#include "horo/engine/runner.h"
#include "horo/engine/runner_parts.h"

namespace horo::engine {

using collective::Operation;

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
