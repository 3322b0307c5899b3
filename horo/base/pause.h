// The instruction that tells a core it is spinning.
#pragma once

namespace horo {

#if defined(__x86_64__)
inline void cpu_pause() { __builtin_ia32_pause(); }
#elif defined(__aarch64__)
inline void cpu_pause() { asm volatile("isb" ::: "memory"); }  // `yield` is a no-op on most server cores.
#else
inline void cpu_pause() {}
#endif

}  // namespace horo
