// Every kernel of the plugin once, on tiny arrays, against the kernels of the host: small and without a framework, so
// that compute-sanitizer is through with it in seconds. Exits with 77 where there is no GPU, saying why.
//
//   horo_cuda_kernels libhoro_cuda.so
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "horo/base/dtype.h"
#include "horo/device/plugin.h"
#include "horo/kernel/reduce.h"

namespace {

using horo::DType;
using horo::ReduceOp;
using Bytes = std::vector<std::byte>;

constexpr int kSkipped = 77;

/// Memory of the device with `bytes` after `offset`, freed at the end.
class Array {
 public:
  Array(const horo_device_plugin& plugin, size_t bytes, size_t offset) : plugin_(plugin), offset_(offset) {
    if (plugin.allocate(0, bytes + offset, &memory_) != 0) std::printf("FAILED: %s\n", plugin.last_error());
  }
  ~Array() { plugin_.free(0, memory_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  void* at() const { return static_cast<std::byte*>(memory_) + offset_; }

 private:
  const horo_device_plugin& plugin_;
  void* memory_ = nullptr;
  const size_t offset_;
};

struct Checker {
  const horo_device_plugin& plugin;
  void* queue = nullptr;
  int checks = 0, failures = 0;

  void expect(bool right, const char* what, int first, int second) {
    ++checks;
    if (right) return;
    ++failures;
    std::printf("FAILED: %s %d %d: %s\n", what, first, second, plugin.last_error());
  }
  bool done(int code) { return code == 0 && plugin.queue_finish(queue, 1) == 0; }
  bool put(void* to, const Bytes& from) { return done(plugin.queue_transfer(queue, to, from.data(), from.size())); }
  bool get(Bytes& to, const void* from) { return done(plugin.queue_transfer(queue, to.data(), from, to.size())); }

  void reduce(DType dtype, ReduceOp op, size_t sources, uint64_t count, size_t offset);
  void copy(size_t pieces);
  void cast(DType to, DType from, uint64_t count, size_t offset);
  void quantize(uint64_t count, size_t offset);
  /// In the default stream, for which the queue waits.
  bool cast_arrays(const horo_device_cast_terms& terms, const std::vector<horo_device_cast>& arrays);
};

/// Small whole numbers, as the element type has them.
Bytes numbers(DType dtype, uint64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& one : values) one = static_cast<float>(random() % 5);
  Bytes bytes(count * horo::size_of(dtype));
  for (uint64_t i = 0; i < count; ++i) {
    std::byte* to = bytes.data() + i * horo::size_of(dtype);
    const float value = values[i];
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (dtype == DType::kF32) {
      std::memcpy(to, &value, sizeof value);
    } else if (dtype == DType::kF64) {
      const double wide = value;
      std::memcpy(to, &wide, sizeof wide);
    } else if (dtype == DType::kBF16) {
      const auto high = static_cast<uint16_t>(bits >> 16);
      std::memcpy(to, &high, sizeof high);
    } else if (dtype == DType::kF16) {
      constexpr uint16_t kHalves[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400};
      std::memcpy(to, &kHalves[static_cast<size_t>(value)], sizeof(uint16_t));
    } else {
      const auto whole = static_cast<uint64_t>(dtype == DType::kBool ? (value > 2 ? 1 : 0) : value);
      std::memcpy(to, &whole, horo::size_of(dtype));
    }
  }
  return bytes;
}

void Checker::reduce(DType dtype, ReduceOp op, size_t sources, uint64_t count, size_t offset) {
  const size_t bytes = count * horo::size_of(dtype);
  std::vector<Bytes> given;
  std::vector<const std::byte*> on_host;
  std::vector<std::unique_ptr<Array>> arrays;
  std::vector<const void*> from;
  for (size_t i = 0; i < sources; ++i) {
    given.push_back(numbers(dtype, count, static_cast<unsigned>(i)));
    arrays.push_back(std::make_unique<Array>(plugin, bytes, offset));
    expect(put(arrays.back()->at(), given.back()), "a transfer", static_cast<int>(dtype), static_cast<int>(op));
    from.push_back(arrays.back()->at());
  }
  for (const Bytes& one : given) on_host.push_back(one.data());
  const int64_t divisor = op == ReduceOp::kAverage ? static_cast<int64_t>(sources) : 1;
  Bytes expected(bytes), got(bytes), also(bytes);
  horo::kernel::combine_many(dtype, op)(expected.data(), on_host, count, {1.0, divisor});
  const Array to(plugin, bytes, offset), twice(plugin, bytes, offset);
  const horo_device_reduction asked{static_cast<int>(dtype),
                                    static_cast<int>(op),
                                    count,
                                    from.data(),
                                    sources,
                                    to.at(),
                                    twice.at(),
                                    1.0,
                                    1.0,
                                    divisor};
  const bool ran = done(plugin.queue_reduce(queue, &asked)) && get(got, to.at()) && get(also, twice.at());
  expect(ran && got == expected && also == expected, "a reduction", static_cast<int>(dtype), static_cast<int>(op));
}

void Checker::copy(size_t pieces) {
  std::vector<horo_device_copy> list;
  size_t total = 0;
  for (size_t i = 0; i < pieces; ++i) total += 1 + i % 97;
  const Bytes given = numbers(DType::kU8, total, 9);
  const Array from(plugin, total, 0), to(plugin, total, pieces % 3);
  expect(put(from.at(), given), "a transfer", 0, 0);
  for (size_t i = 0, at = 0; i < pieces; at += 1 + i++ % 97) {
    list.push_back({static_cast<std::byte*>(to.at()) + at, static_cast<std::byte*>(from.at()) + at, 1 + i % 97});
  }
  Bytes got(total);
  const bool ran = done(plugin.queue_copy(queue, list.data(), list.size())) && get(got, to.at());
  expect(ran && got == given, "copies", static_cast<int>(pieces), 0);
}

bool Checker::cast_arrays(const horo_device_cast_terms& terms, const std::vector<horo_device_cast>& arrays) {
  void* event = nullptr;
  if (plugin.cast(0, nullptr, &terms, arrays.data(), arrays.size()) != 0) return false;
  if (plugin.record(0, nullptr, &event) != 0) return false;
  const bool ran = done(plugin.queue_wait(queue, event));
  plugin.forget(event);
  return ran;
}

void Checker::cast(DType to, DType from, uint64_t count, size_t offset) {
  const size_t given_size = horo::size_of(from), made_size = horo::size_of(to);
  const Bytes given = numbers(from, count, 5);
  Bytes expected(count * made_size), got(count * made_size);
  horo::kernel::cast(to, from)(expected.data(), given.data(), count);
  const Array source(plugin, given.size(), offset * given_size), target(plugin, got.size(), offset * made_size);
  const uint64_t first = count / 3;
  const std::vector<horo_device_cast> arrays = {
      {target.at(), source.at(), first, nullptr},
      {static_cast<std::byte*>(target.at()) + first * made_size,
       static_cast<std::byte*>(source.at()) + first * given_size, count - first, nullptr}};
  const bool ran = put(source.at(), given) &&
                   cast_arrays({static_cast<int>(to), static_cast<int>(from), 0, 1.0F}, arrays) &&
                   get(got, target.at());
  expect(ran && got == expected, "a cast", static_cast<int>(to), static_cast<int>(from));
}

/// Of numbers up to 4: each is off by 4/254 at most, and twice as much where it is added to itself.
void Checker::quantize(uint64_t count, size_t offset) {
  const Bytes given = numbers(DType::kF32, count, 6);
  const Array source(plugin, given.size(), offset * 4), bytes(plugin, count, offset), target(plugin, given.size(), 0);
  const Array largest(plugin, sizeof(float), 0);
  auto* most = static_cast<float*>(largest.at());
  const int f32 = static_cast<int>(DType::kF32), i8 = static_cast<int>(DType::kI8);
  bool ran = put(source.at(), given) && cast_arrays({i8, f32, 0, 1.0F}, {{bytes.at(), source.at(), count, most}}) &&
             cast_arrays({f32, i8, 0, 1.0F}, {{target.at(), bytes.at(), count, most}}) &&
             cast_arrays({f32, i8, 1, 0.5F}, {{target.at(), bytes.at(), count, most}});
  Bytes got(given.size());
  ran = ran && get(got, target.at());
  for (uint64_t i = 0; i < count && ran; ++i) {
    float was = 0, is = 0;
    std::memcpy(&was, given.data() + i * 4, sizeof was);
    std::memcpy(&is, got.data() + i * 4, sizeof is);
    ran = is - was <= 4.0F / 250 && was - is <= 4.0F / 250;
  }
  expect(ran, "8-bit integers", static_cast<int>(count), static_cast<int>(offset));
}

int check_all(const horo_device_plugin& plugin) {
  Checker checker{plugin};
  if (plugin.open_queue(0, &checker.queue) != 0) {
    std::printf("FAILED: %s\n", plugin.last_error());
    return 1;
  }
  for (size_t pieces : {1, 3, 96, 200}) checker.copy(pieces);
  const struct {
    DType dtype;
    ReduceOp op;
    size_t sources;
  } reductions[] = {{DType::kF32, ReduceOp::kSum, 2},     {DType::kF32, ReduceOp::kAverage, 5},
                    {DType::kBF16, ReduceOp::kSum, 2},    {DType::kF16, ReduceOp::kMax, 3},
                    {DType::kF64, ReduceOp::kProduct, 2}, {DType::kI32, ReduceOp::kAverage, 4},
                    {DType::kU8, ReduceOp::kXor, 2},      {DType::kBool, ReduceOp::kAnd, 2}};
  for (const auto& one : reductions) {
    checker.reduce(one.dtype, one.op, one.sources, 1, 0);
    checker.reduce(one.dtype, one.op, one.sources, 1003, 0);
    checker.reduce(one.dtype, one.op, one.sources, 1003, horo::size_of(one.dtype));  // Not aligned to 16 bytes.
  }
  const std::pair<DType, DType> casts[] = {
      {DType::kF16, DType::kF32}, {DType::kBF16, DType::kF32}, {DType::kF16, DType::kF64},  {DType::kBF16, DType::kF64},
      {DType::kF32, DType::kF16}, {DType::kF32, DType::kBF16}, {DType::kF64, DType::kBF16}, {DType::kF64, DType::kF16}};
  for (const auto& [to, from] : casts) {
    for (const size_t offset : {0, 1}) checker.cast(to, from, 20'003, offset);
  }
  for (const uint64_t elements : {1, 20'003}) {
    for (const size_t offset : {0, 1}) checker.quantize(elements, offset);
  }
  plugin.close_queue(checker.queue);
  std::printf("%d checks, %d failures\n", checker.checks, checker.failures);
  return checker.failures == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  void* library = count > 1 ? dlopen(words[1], RTLD_NOW) : nullptr;
  if (library == nullptr) {
    std::printf("horo_cuda_kernels LIBHORO_CUDA_SO: %s\n", count > 1 ? dlerror() : "no file");
    return 2;
  }
  const auto entry = reinterpret_cast<const horo_device_plugin* (*)()>(dlsym(library, HORO_DEVICE_ENTRY));
  const horo_device_plugin& plugin = *entry();
  plugin.set_cache("");
  char said[2048] = "";
  int devices = 0;
  if (plugin.describe(said, sizeof said) != 0 || plugin.count(&devices) != 0 || devices == 0) {
    std::printf("skipped: %s\n%s", plugin.last_error(), said);
    return kSkipped;
  }
  return check_all(plugin);
}
