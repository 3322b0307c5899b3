# libhoro_cuda.so: CUDA, opened at run time. Neither headers nor libraries of CUDA are needed to build it.
file(READ ${CMAKE_CURRENT_LIST_DIR}/kernels.cu kernels)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/plugins/cuda/kernels_text.cc @ONLY CONTENT
"#include \"plugins/cuda/kernels_text.h\"
namespace horo::cuda {
const char* const kKernelsText = R\"HORO(@kernels@)HORO\";
}  // namespace horo::cuda
")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/kernels.cu)
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cc)
list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
add_library(horo_cuda MODULE ${sources} ${CMAKE_BINARY_DIR}/plugins/cuda/kernels_text.cc)
target_include_directories(horo_cuda PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_options(horo_cuda PRIVATE ${HORO_WARNINGS})
target_link_libraries(horo_cuda PRIVATE horo_base)
target_link_options(horo_cuda PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(horo_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
install(TARGETS horo_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(TARGETS horo_cuda LIBRARY DESTINATION horo COMPONENT python)
set_property(GLOBAL APPEND PROPERTY HORO_PLUGINS horo_cuda)
