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
horo_common_headers(horo_cuda)
target_link_libraries(horo_cuda PRIVATE horo_base)
target_link_options(horo_cuda PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(horo_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
install(TARGETS horo_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(TARGETS horo_cuda LIBRARY DESTINATION horo COMPONENT python)
set_property(GLOBAL APPEND PROPERTY HORO_PLUGINS horo_cuda)

# The path over NCCL with several ranks, on machines without a GPU: against stand-ins of the driver, NVRTC and NCCL, which
# the plugin takes for the real ones because of their names.
if(HORO_TESTS)
  foreach(standin driver=libcuda.so.1 nvrtc=libnvrtc.so.12 nccl=libnccl.so.2)
    string(REGEX REPLACE "=.*" "" name ${standin})
    string(REGEX REPLACE ".*=" "" soname ${standin})
    add_library(horo_standin_${name} SHARED ${CMAKE_CURRENT_LIST_DIR}/testing/standin_${name}.cc)
    target_include_directories(horo_standin_${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_compile_options(horo_standin_${name} PRIVATE ${HORO_WARNINGS})
    target_link_libraries(horo_standin_${name} PRIVATE ${CMAKE_DL_LIBS})
    target_link_options(horo_standin_${name} PRIVATE -Wl,-soname,${soname})
    set_target_properties(horo_standin_${name} PROPERTIES NO_SONAME ON
                                                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/standins)
  endforeach()
  horo_test(cuda SOURCES ${CMAKE_CURRENT_LIST_DIR}/fabric_test.cc LIBRARIES horo_engine)
  target_compile_definitions(horo_cuda_test PRIVATE HORO_BINARY_DIR="${CMAKE_BINARY_DIR}")
  add_dependencies(horo_cuda_test horo_cuda horo_standin_driver horo_standin_nvrtc horo_standin_nccl)
  horo_program(horo_cuda_kernels SOURCES ${CMAKE_CURRENT_LIST_DIR}/testing/kernels_check.cc LIBRARIES horo_kernel)
  add_dependencies(horo_cuda_kernels horo_cuda)
  add_test(NAME cuda_kernels COMMAND horo_cuda_kernels $<TARGET_FILE:horo_cuda>)
  set_tests_properties(cuda_kernels PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 60)
endif()
