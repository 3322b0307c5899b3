// The kernels, compiled by NVRTC for one element type and reduction at a time. No header of CUDA's is needed. Bits are
// those of the host's kernels: f16 and bf16 are computed in f32 and rounded once, nothing is contracted, NaN is stored
// as the one quiet NaN, min and max propagate it.
//
// HORO_COPY:   copy_few, copy_many, look_again.
// HORO_REDUCE: reduce_wide, reduce_one, with DTYPE and OP (numbers of horo.h) and SOURCES (0: any number).
// HORO_CAST:   cast, and where TO is i8 clear and largest, with FROM and TO (numbers of horo.h).
typedef unsigned char u8; typedef signed char i8;
typedef unsigned short u16; typedef short i16;
typedef unsigned int u32; typedef int i32;
typedef unsigned long long u64; typedef long long i64;
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
// Whether the operation of this kernel has failed before it began: a word that look_again has set, or none.
static __device__ bool is_called_off(const u32* guard) { return guard != 0 && *guard != 0; }

#ifdef HORO_COPY

struct Piece {
  u8* to;
  const u8* from;
  u64 bytes;
  u64 first;  // Chunks of all pieces before.
};
struct Few {
  Piece pieces[CAPACITY];
};

template <class T>
static __device__ void copy_elements(u8* to, const u8* from, u64 bytes) {
  T* out = (T*)to;
  const T* in = (const T*)from;
  const u64 count = bytes / sizeof(T);
  u64 i = threadIdx.x;
  for (; i + 3 * THREADS < count; i += 4 * THREADS) {
    const T a = in[i], b = in[i + THREADS], c = in[i + 2 * THREADS], d = in[i + 3 * THREADS];
    out[i] = a;
    out[i + THREADS] = b;
    out[i + 2 * THREADS] = c;
    out[i + 3 * THREADS] = d;
  }
  for (; i < count; i += THREADS) out[i] = in[i];
  for (u64 j = count * sizeof(T) + threadIdx.x; j < bytes; j += THREADS) to[j] = from[j];
}

static __device__ void copy_chunks(const Piece* pieces, u32 count, u64 chunks) {
  for (u64 chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    u32 low = 0, high = count;  // The last piece whose first chunk is not after this one.
    while (high - low > 1) {
      const u32 middle = (low + high) / 2;
      if (pieces[middle].first <= chunk) low = middle;
      else high = middle;
    }
    const u64 at = (chunk - pieces[low].first) * CHUNK;
    const u64 left = pieces[low].bytes - at;
    const u64 bytes = left < CHUNK ? left : CHUNK;
    u8* to = pieces[low].to + at;
    const u8* from = pieces[low].from + at;
    const u64 bits = (u64)to | (u64)from;
    if (bits % 16 == 0) copy_elements<uint4>(to, from, bytes);
    else if (bits % 8 == 0) copy_elements<u64>(to, from, bytes);
    else if (bits % 4 == 0) copy_elements<u32>(to, from, bytes);
    else if (bits % 2 == 0) copy_elements<u16>(to, from, bytes);
    else copy_elements<u8>(to, from, bytes);
  }
}

KERNEL copy_few(const __grid_constant__ Few few, u32 count, u64 chunks, const u32* guard) {
  if (!is_called_off(guard)) copy_chunks(few.pieces, count, chunks);
}
KERNEL copy_many(const Piece* pieces, u32 count, u64 chunks, const u32* guard) {
  if (!is_called_off(guard)) copy_chunks(pieces, count, chunks);
}
// The host's word becomes the device's. Each block that read the host's itself would take 2 us more, one after another.
extern "C" __global__ void look_again(const volatile u32* word, u32* guard) { *guard = *word; }

#endif
#if defined(HORO_REDUCE) || defined(HORO_CAST)

// How an element is stored (Raw), and what is computed with (Wide).
template <class T>
struct Whole {
  typedef T Raw;
  typedef T Wide;
  static __device__ Wide load(Raw raw) { return raw; }
  static __device__ Raw store(Wide wide) { return wide; }
  static const bool kFloat = false;
};
struct F32 {
  typedef float Raw;
  typedef float Wide;
  static __device__ Wide load(Raw raw) { return raw; }
  static __device__ Raw store(Wide wide) { return wide == wide ? wide : __int_as_float(0x7fc00000); }
  static const bool kFloat = true;
};
struct F64 {
  typedef double Raw;
  typedef double Wide;
  static __device__ Wide load(Raw raw) { return raw; }
  static __device__ Raw store(Wide wide) { return wide == wide ? wide : __longlong_as_double(0x7ff8000000000000ll); }
  static const bool kFloat = true;
};
struct F16 {
  typedef u16 Raw;
  typedef float Wide;
  static __device__ Wide load(Raw raw) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(raw));
    return wide;
  }
  static __device__ Raw store(Wide wide) {
    if (!(wide == wide)) return 0x7e00;
    u16 raw;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(raw) : "f"(wide));
    return raw;
  }
  static const bool kFloat = true;
};
struct BF16 {
  typedef u16 Raw;
  typedef float Wide;
  static __device__ Wide load(Raw raw) { return __uint_as_float((u32)raw << 16); }
  static __device__ Raw store(Wide wide) {
    if (!(wide == wide)) return 0x7fc0;
    const u32 bits = __float_as_uint(wide);
    return (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
  static const bool kFloat = true;
};
struct Bool {
  typedef u8 Raw;
  typedef u8 Wide;
  static __device__ Wide load(Raw raw) { return raw != 0; }
  static __device__ Raw store(Wide wide) { return wide != 0; }
  static const bool kFloat = false;
};

template <int dtype> struct Element;
template <> struct Element<0> : Whole<u8> {};
template <> struct Element<1> : Whole<i8> {};
template <> struct Element<2> : Whole<u16> {};
template <> struct Element<3> : Whole<i16> {};
template <> struct Element<4> : Whole<u32> {};
template <> struct Element<5> : Whole<i32> {};
template <> struct Element<6> : Whole<u64> {};
template <> struct Element<7> : Whole<i64> {};
template <> struct Element<8> : F16 {};
template <> struct Element<9> : BF16 {};
template <> struct Element<10> : F32 {};
template <> struct Element<11> : F64 {};
template <> struct Element<12> : Bool {};

#endif
#ifdef HORO_REDUCE

enum { kSum, kAverage, kMin, kMax, kProduct, kAnd, kOr, kXor };

typedef Element<DTYPE> E;
typedef E::Raw Raw;
typedef E::Wide Wide;

static __device__ Wide combine(Wide a, Wide b) {
#if DTYPE == 12
  if (OP == kSum || OP == kMax || OP == kOr) return a | b;
  if (OP == kXor) return a ^ b;
  return a & b;
#else
  if (OP == kSum || OP == kAverage) return (Wide)(a + b);
  if (OP == kProduct) return (Wide)(a * b);
  if (OP == kMin) return a < b ? a : (a == a ? b : a);
  if (OP == kMax) return a > b ? a : (a == a ? b : a);
#if DTYPE < 8
  if (OP == kAnd) return (Wide)(a & b);
  if (OP == kOr) return (Wide)(a | b);
  if (OP == kXor) return (Wide)(a ^ b);
#endif
  return a;
#endif
}

struct Terms {
  double before, factor;
  i64 divisor;
};
struct Sources {
  const void* from[CAPACITY];
};

#if DTYPE < 8
// Through f64, truncated; what does not fit becomes the nearest value that does.
static __device__ Wide multiplied(Wide value, double factor) {
  const bool is_signed = (Wide)-1 < (Wide)0;
  const int bits = 8 * sizeof(Wide);
  const Wide low = is_signed ? (Wide)((u64)1 << (bits - 1)) : (Wide)0;
  const Wide high = (Wide)~low;
  const double exact = (double)value * factor;
  if (exact >= (double)high) return high;
  if (exact <= (double)low) return low;
  return exact == exact ? (Wide)exact : (Wide)0;
}
#endif

static __device__ Wide scaled(Wide value, const Terms& terms) {
#if DTYPE >= 8 && DTYPE <= 11
  if (terms.divisor > 1) return value / (Wide)((double)terms.divisor / terms.factor);
  return terms.factor == 1.0 ? value : value * (Wide)terms.factor;
#elif DTYPE < 8
  if (terms.divisor > 1) value = (Wide)(value / (Wide)terms.divisor);
  return terms.factor == 1.0 ? value : multiplied(value, terms.factor);
#else
  return value;
#endif
}

static __device__ Wide taken(Raw raw, const Terms& terms) {
  const Wide value = E::load(raw);
#if DTYPE >= 8 && DTYPE <= 11
  return terms.before == 1.0 ? value : E::load(E::store(value * (Wide)terms.before));
#elif DTYPE < 8
  return terms.before == 1.0 ? value : multiplied(value, terms.before);
#else
  return value;
#endif
}

#define REDUCED const __grid_constant__ Sources sources, u32 count, Raw* to, Raw* also
#define WIDTH (16 / sizeof(Raw))
union Pack {
  uint4 all;
  Raw part[16 / sizeof(Raw)];
};

// All pointers are aligned to 16 bytes; `packs` of WIDTH elements.
KERNEL reduce_wide(REDUCED, u64 packs, Terms terms, const u32* guard) {
  if (is_called_off(guard)) return;
  const u32 inputs = SOURCES == 0 ? count : SOURCES;
  const u64 stride = (u64)gridDim.x * THREADS;
  for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < packs; i += 2 * stride) {
    const bool second = i + stride < packs;
    const u64 j = second ? i + stride : i;
    Wide one[WIDTH], two[WIDTH];
#pragma unroll 4
    for (u32 s = 0; s < inputs; ++s) {
      Pack a, b;
      a.all = ((const uint4*)sources.from[s])[i];
      b.all = ((const uint4*)sources.from[s])[j];
#pragma unroll
      for (u32 e = 0; e < WIDTH; ++e) {
        const Wide x = taken(a.part[e], terms), y = taken(b.part[e], terms);
        one[e] = s == 0 ? x : combine(one[e], x);
        two[e] = s == 0 ? y : combine(two[e], y);
      }
    }
    Pack a, b;
#pragma unroll
    for (u32 e = 0; e < WIDTH; ++e) {
      a.part[e] = E::store(scaled(one[e], terms));
      b.part[e] = E::store(scaled(two[e], terms));
    }
    ((uint4*)to)[i] = a.all;
    if (second) ((uint4*)to)[j] = b.all;
    if (also) {
      ((uint4*)also)[i] = a.all;
      if (second) ((uint4*)also)[j] = b.all;
    }
  }
}

KERNEL reduce_one(REDUCED, u64 elements, Terms terms, const u32* guard) {
  if (is_called_off(guard)) return;
  for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < elements; i += (u64)gridDim.x * THREADS) {
    Wide value = taken(((const Raw*)sources.from[0])[i], terms);
    for (u32 s = 1; s < count; ++s) value = combine(value, taken(((const Raw*)sources.from[s])[i], terms));
    const Raw result = E::store(scaled(value, terms));
    to[i] = result;
    if (also) also[i] = result;
  }
}

#endif
#ifdef HORO_CAST

typedef Element<FROM> Given;
typedef Element<TO> Made;
typedef Given::Raw From;
typedef Made::Raw To;

struct Piece {
  To* to;
  const From* from;
  float* largest;  // Of i8: the value that 127 stands for.
  u64 count;
  u64 first;  // Chunks of all pieces before.
};
struct Few {
  Piece pieces[CAPACITY];
};
struct Terms {
  float factor;
  u32 add;
};

// Four elements, which are read and written at once.
struct alignas(16) Wide32 {
  uint4 low, high;
};
template <u32 bytes> struct Words;
template <> struct Words<4> { typedef u32 All; };
template <> struct Words<8> { typedef u64 All; };
template <> struct Words<16> { typedef uint4 All; };
template <> struct Words<32> { typedef Wide32 All; };
template <class T>
union Four {
  typename Words<4 * sizeof(T)>::All all;
  T part[4];
};
template <class T>
static __device__ bool is_aligned(const T* memory) {
  return (u64)memory % (sizeof(Four<T>) < 16 ? sizeof(Four<T>) : 16) == 0;
}

// Cut off, the last bit set if anything was lost: rounding that again gives what rounding once would.
static __device__ float to_odd(double value) {
  const float cut = __double2float_rz(value);
  return (double)cut == value || !(value == value) ? cut : __uint_as_float(__float_as_uint(cut) | 1);
}
static __device__ float to_odd(float value) { return value; }

// What values are multiplied by.
static __device__ float scale_of(const float* largest) {
#if TO == 1
  const float scale = 127.0f / *largest;
  // Nothing but zeros, nothing that makes sense, or so small that the scale has no number: then all become zeros.
  return *largest > 0.0f && __float_as_uint(*largest) < 0x7f800000 && __float_as_uint(scale) < 0x7f800000 ? scale : 0.0f;
#elif FROM == 1
  const bool is_finite = (__float_as_uint(*largest) & 0x7fffffff) < 0x7f800000;
  return is_finite ? *largest / 127.0f : __int_as_float(0x7fc00000);
#else
  return 1.0f;
#endif
}

static __device__ To cast_one(From raw, To old, float scale, const Terms& terms) {
#if TO == 1
  return (To)__float2int_rn(raw * scale);  // NaN becomes 0.
#elif FROM == 1
  const float value = (float)raw * scale;
  const float sum = terms.add ? old + value : value;
  return terms.factor == 1.0f ? sum : sum * terms.factor;
#else
  return Made::store(to_odd(Given::load(raw)));
#endif
}

#define ELEMENTS (CHUNK / 4)

// The chunks of one block. Of many pieces those that follow each other: so do their pieces, which are looked for less
// often. Of few pieces blocks take turns, which memory likes better.
struct Walk {
  const Few& few;
  const u32 count;
  u64 begin, end, first, step;
  u32 at;  // The last piece whose first chunk is not after the one that was asked for.

  __device__ Walk(const Few& all, u32 pieces, u64 chunks) : few(all), count(pieces), at(0) {
    const bool many = pieces > 16;
    begin = many ? chunks * blockIdx.x / gridDim.x : 0;
    end = many ? chunks * (blockIdx.x + 1) / gridDim.x : chunks;
    first = many ? begin : blockIdx.x;
    step = many ? 1 : gridDim.x;
  }
  // True when it is another piece than before.
  __device__ bool go_to(u64 chunk) {
    const u32 before = at;
    if (few.pieces[at].first > chunk) {
      while (few.pieces[at].first > chunk) --at;
    } else if (at + 1 < count && few.pieces[at + 1].first <= chunk) {
      u32 high = count;
      while (high - at > 1) {
        const u32 middle = (at + high) / 2;
        if (few.pieces[middle].first <= chunk) at = middle;
        else high = middle;
      }
    }
    return at != before;
  }
  __device__ const Piece& piece() const { return few.pieces[at]; }
  __device__ u64 offset(u64 chunk) const { return (chunk - piece().first) * ELEMENTS; }
  __device__ u64 elements(u64 chunk) const {
    const u64 left = piece().count - offset(chunk);
    return left < ELEMENTS ? left : ELEMENTS;
  }
};

static __device__ void cast_chunk(To* to, const From* from, u64 count, float scale, const Terms& terms) {
  u64 done = 0;
  if (is_aligned(to) && is_aligned(from)) {
    Four<To>* out = (Four<To>*)to;
    const Four<From>* in = (const Four<From>*)from;
    const u64 packs = count / 4;
    u64 i = threadIdx.x;
    for (; i + 3 * THREADS < packs; i += 4 * THREADS) {
      Four<From> a[4];
      Four<To> b[4];
#pragma unroll
      for (u32 k = 0; k < 4; ++k) a[k].all = in[i + k * THREADS].all;
      if (terms.add) {
#pragma unroll
        for (u32 k = 0; k < 4; ++k) b[k].all = out[i + k * THREADS].all;
      }
#pragma unroll
      for (u32 k = 0; k < 4; ++k) {
#pragma unroll
        for (u32 e = 0; e < 4; ++e) b[k].part[e] = cast_one(a[k].part[e], b[k].part[e], scale, terms);
        out[i + k * THREADS].all = b[k].all;
      }
    }
    for (; i < packs; i += THREADS) {
      Four<From> a;
      Four<To> b;
      a.all = in[i].all;
      if (terms.add) b.all = out[i].all;
#pragma unroll
      for (u32 e = 0; e < 4; ++e) b.part[e] = cast_one(a.part[e], b.part[e], scale, terms);
      out[i].all = b.all;
    }
    done = packs * 4;
  }
#pragma unroll 4
  for (u64 i = done + threadIdx.x; i < count; i += THREADS) {
    to[i] = cast_one(from[i], terms.add ? to[i] : (To)0, scale, terms);
  }
}

KERNEL cast(const __grid_constant__ Few few, u32 count, u64 chunks, Terms terms) {
  Walk walk(few, count, chunks);
  float scale = 1.0f;
  for (u64 turn = walk.first; turn < walk.end; turn += walk.step) {
    // Where everything was read just now, what was read last is still in the cache.
    const u64 chunk = TO == 1 ? walk.begin + walk.end - 1 - turn : turn;
    if (walk.go_to(chunk) || turn == walk.first) scale = scale_of(walk.piece().largest);
    const u64 at = walk.offset(chunk);
    cast_chunk(walk.piece().to + at, walk.piece().from + at, walk.elements(chunk), scale, terms);
  }
}

#if TO == 1

KERNEL clear(const __grid_constant__ Few few, u32 count) {
  for (u32 i = threadIdx.x; i < count; i += THREADS) *few.pieces[i].largest = 0.0f;
}

// As integers the bits of absolute values are in the same order, infinity and NaN last.
static __device__ u32 magnitude(u32 most, u32 bits) {
  bits &= 0x7fffffff;
  return bits > most ? bits : most;
}

static __device__ u32 largest_of(const u32* from, u64 elements, u32 most) {
  u64 done = 0;
  if ((u64)from % 16 == 0) {
    const uint4* in = (const uint4*)from;
    const u64 packs = elements / 4;
#pragma unroll 8
    for (u64 i = threadIdx.x; i < packs; i += THREADS) {
      const uint4 four = in[i];
      most = magnitude(magnitude(magnitude(magnitude(most, four.x), four.y), four.z), four.w);
    }
    done = packs * 4;
  }
#pragma unroll 8
  for (u64 i = done + threadIdx.x; i < elements; i += THREADS) most = magnitude(most, from[i]);
  return most;
}

static __device__ void keep_largest(float* largest, u32 most) {
#pragma unroll
  for (u32 lane = 16; lane > 0; lane /= 2) most = magnitude(most, __shfl_xor_sync(0xffffffff, most, lane));
  // Looked at first: few values are larger than all before.
  u32* all = (u32*)largest;
  if (threadIdx.x % 32 == 0 && most > *(volatile u32*)all) atomicMax(all, most);
}

KERNEL largest(const __grid_constant__ Few few, u32 count, u64 chunks) {
  Walk walk(few, count, chunks);
  u32 most = 0;
  float* place = 0;
  for (u64 chunk = walk.first; chunk < walk.end; chunk += walk.step) {
    walk.go_to(chunk);
    if (walk.piece().largest != place) {
      if (place) keep_largest(place, most);
      place = walk.piece().largest;
      most = 0;
    }
    most = largest_of((const u32*)(walk.piece().from + walk.offset(chunk)), walk.elements(chunk), most);
  }
  if (place) keep_largest(place, most);
}

#endif
#endif
