// kernels.cu, as text.
#pragma once

namespace horo::cuda {

extern const char* const kKernelsText;

}  // namespace horo::cuda
