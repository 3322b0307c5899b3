#include "horo/kernel/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "horo/base/check.h"
#include "horo/base/immortal.h"
#include "horo/kernel/kernels.h"

namespace horo::kernel {

namespace {

const Kernels& kernels_of(Isa isa) {
  auto tables = usable_kernels();
  auto found = std::find_if(tables.begin(), tables.end(), [isa](const Kernels* table) { return table->isa == isa; });
  HORO_CHECK(found != tables.end(), "this instruction set is not one of available()");
  return **found;
}

bool in_tables(DType dtype, ReduceOp op) { return is_valid(dtype) && is_valid(op); }

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kNeon:
      return "neon";
    case Isa::kSve:
      return "sve";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

std::span<const Isa> available() {
  static const Immortal<std::vector<Isa>> isas([] {
    std::vector<Isa> found;
    for (const Kernels* table : usable_kernels()) found.push_back(table->isa);
    return found;
  });
  return *isas;
}

Isa best() { return usable_kernels().back()->isa; }

CombineFn combine(DType dtype, ReduceOp op, Isa isa) {
  if (!in_tables(dtype, op)) return nullptr;
  return kernels_of(isa).combine[static_cast<int>(dtype)][static_cast<int>(op)];
}

CombineManyFn combine_many(DType dtype, ReduceOp op, Isa isa, Placement placement) {
  if (!in_tables(dtype, op)) return nullptr;
  const auto& tables = kernels_of(isa).combine_many;
  return tables[static_cast<int>(placement)][static_cast<int>(dtype)][static_cast<int>(op)];
}

CombineKeepingFn combine_keeping(DType dtype, ReduceOp op, Isa isa) {
  if (!in_tables(dtype, op)) return nullptr;
  return kernels_of(isa).combine_keeping[static_cast<int>(dtype)][static_cast<int>(op)];
}

ScaleFn scale(DType dtype, Isa isa) {
  return is_valid(dtype) ? kernels_of(isa).scale[static_cast<int>(dtype)] : nullptr;
}

Scaling average(DType dtype, int members) {
  // Multiplying by the inverse of a power of two is dividing, only faster.
  const bool exact = std::has_single_bit(static_cast<unsigned>(members)) && !is_integer(dtype);
  return exact ? Scaling{.factor = 1.0 / members} : Scaling{.divisor = members};
}

CastFn cast(DType to, DType from, Isa isa) {
  if (!is_float(to) || !is_float(from)) return nullptr;
  const auto index = [](DType dtype) { return static_cast<int>(dtype) - static_cast<int>(DType::kF16); };
  return kernels_of(isa).cast[index(to)][index(from)];
}

}  // namespace horo::kernel
