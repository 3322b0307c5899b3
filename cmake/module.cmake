# horo_module(NAME [DEPENDS modules...] [LIBRARIES targets...])
#
# Everything under horo/NAME is one static library, horo_NAME. Files ending in _test.cc become one test program,
# horo_NAME_test; each _fuzz.cc becomes a libFuzzer program of its own (preset fuzz), and all _bench.cc one program,
# horo_NAME_bench. A folder may add to this (flags for single files, say) in a module.cmake of its own.
function(horo_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES" ${ARGN})
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/horo/${name})
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${folder}/*.cc)
  foreach(kind test fuzz bench)
    set(${kind}_sources ${all})
    list(FILTER ${kind}_sources INCLUDE REGEX "_${kind}\\.cc$")
  endforeach()
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz|bench)\\.cc$")

  # A module of headers only, or one that is still to be written, passes its dependencies on.
  set(target horo_${name})
  set(scope PUBLIC)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_compile_options(${target} PRIVATE ${HORO_WARNINGS})
    horo_common_headers(${target})
    set_property(GLOBAL APPEND PROPERTY HORO_COMPILED_MODULES ${target})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  set_property(GLOBAL APPEND PROPERTY HORO_MODULES ${target})
  target_include_directories(${target} ${scope} ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(${target} ${scope} Threads::Threads ${CMAKE_DL_LIBS} ${ARG_LIBRARIES})
  foreach(dependency IN LISTS ARG_DEPENDS)
    target_link_libraries(${target} ${scope} horo_${dependency})
  endforeach()

  if(HORO_TESTS AND test_sources)
    horo_test(${name} SOURCES ${test_sources} LIBRARIES ${target})
  endif()
  if(HORO_BENCH AND bench_sources)
    horo_program(${target}_bench SOURCES ${bench_sources} LIBRARIES ${target} benchmark::benchmark_main)
  endif()
  if(HORO_FUZZ)
    foreach(source IN LISTS fuzz_sources)
      get_filename_component(stem ${source} NAME_WE)
      horo_program(horo_${name}_${stem} SOURCES ${source} LIBRARIES ${target})
      target_link_options(horo_${name}_${stem} PRIVATE -fsanitize=fuzzer)
    endforeach()
  endif()
  if(EXISTS ${folder}/module.cmake)
    include(${folder}/module.cmake)
  endif()
endfunction()

# horo_reuse_headers(TARGET FROM): the precompiled headers of FROM. Ccache reads all hundred megabytes of them for every
# file unless a checksum lies beside them (and CCACHE_PCH_EXTSUM is set): 7 % of the time of a build, a quarter of that
# of the wheel after it.
function(horo_reuse_headers target from)
  target_precompile_headers(${target} REUSE_FROM ${from})
  if(NOT HORO_CCACHE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU OR NOT CMAKE_GENERATOR STREQUAL Ninja)
    return()
  endif()
  if(NOT TARGET ${from}_sum)
    get_target_property(folder ${from} BINARY_DIR)
    set(folder ${folder}/CMakeFiles/${from}.dir)
    set(file cmake_pch.hxx.gch)
    # Named without its folder: the sum must be the same in every build.
    add_custom_command(OUTPUT ${folder}/${file}.sum DEPENDS ${folder}/${file} WORKING_DIRECTORY ${folder}
      COMMAND ${CMAKE_COMMAND} -E sha256sum ${file} > ${file}.sum COMMENT "Summing up the headers of ${from}")
    add_custom_target(${from}_sum DEPENDS ${folder}/${file}.sum)
  endif()
  add_dependencies(${target} ${from}_sum)
endfunction()

# horo_common_headers(TARGET): precompiled headers of the standard library, one set for all that is compiled alike. A
# third of the time of compiling goes into them. Files with flags of their own set SKIP_PRECOMPILE_HEADERS.
function(horo_common_headers target)
  if(NOT HORO_PCH)
    return()
  endif()
  if(NOT TARGET horo_headers)
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/horo_headers.cc CONTENT "")
    add_library(horo_headers STATIC ${CMAKE_BINARY_DIR}/horo_headers.cc)
    target_compile_options(horo_headers PRIVATE ${HORO_WARNINGS})
    target_link_libraries(horo_headers PRIVATE Threads::Threads)
    target_precompile_headers(horo_headers PRIVATE <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint>
      <cstring> <deque> <functional> <map> <memory> <mutex> <optional> <set> <span> <sstream> <string> <string_view>
      <thread> <utility> <variant> <vector>)
  endif()
  horo_reuse_headers(${target} horo_headers)
endfunction()

# horo_program(NAME SOURCES files... LIBRARIES targets...): an executable with our warnings and include paths.
function(horo_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${HORO_WARNINGS})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES})
endfunction()

# horo_test(NAME [STARTS_PROCESSES] [TIMEOUT seconds] SOURCES files... LIBRARIES targets...): the GoogleTest program
# horo_NAME_test, run by ctest as NAME. STARTS_PROCESSES: see HORO_SLOW_LEAK_CHECK.
#
# Most of the time of compiling a test goes into GoogleTest's headers and into optimising code that runs once, so all
# tests share precompiled headers and are optimised lightly. The library under test is not affected.
function(horo_test name)
  cmake_parse_arguments(ARG "STARTS_PROCESSES" "TIMEOUT" "SOURCES;LIBRARIES" ${ARGN})
  set(program horo_${name}_test)
  horo_program(${program} SOURCES ${ARG_SOURCES} LIBRARIES ${ARG_LIBRARIES} GTest::gtest_main GTest::gtest)
  target_compile_options(${program} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  if(HORO_PCH)
    if(NOT TARGET horo_test_headers)
      # An executable, because GCC takes precompiled headers only where all flags are the same (-fPIE).
      file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/horo_test_headers.cc CONTENT "int main() {}\n")
      add_executable(horo_test_headers ${CMAKE_BINARY_DIR}/horo_test_headers.cc)
      target_compile_options(horo_test_headers PRIVATE ${HORO_WARNINGS} $<$<CONFIG:RelWithDebInfo>:-O1>)
      target_link_libraries(horo_test_headers PRIVATE GTest::gtest Threads::Threads)
      target_precompile_headers(horo_test_headers PRIVATE <gtest/gtest.h> <algorithm> <array> <atomic> <chrono>
        <condition_variable> <cstring> <functional> <map> <memory> <mutex> <numeric> <optional> <random> <span> <string>
        <string_view> <thread> <vector>)
    endif()
    horo_reuse_headers(${program} horo_test_headers)
  endif()
  add_test(NAME ${name} COMMAND ${program})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  math(EXPR seconds "${ARG_TIMEOUT} * ${HORO_TEST_PATIENCE}")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds})
  if(ARG_STARTS_PROCESSES AND HORO_SLOW_LEAK_CHECK)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
  endif()
endfunction()

# horo_place_code(TARGET ALIGNMENT): keeps a shared object's code, or the first 2 MiB of it, between two multiples of
# 2 MiB of the address space. Neoverse N1 predicts branches by such regions: code that one boundary lies in the middle of
# took three times as long, in those launches whose random addresses had put it there (docs/performance.md). The
# compiler's helpers for atomic operations, which the linker would put last, come first, beside what calls them.
function(horo_place_code target alignment)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$" OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  target_link_options(${target} PRIVATE -Wl,-z,max-page-size=${alignment})
  foreach(operation cas swp ldadd ldclr ldset)
    foreach(bytes 1 2 4 8)
      foreach(order relax acq rel acq_rel)
        target_link_options(${target} PRIVATE -Wl,-u,__aarch64_${operation}${bytes}_${order})
      endforeach()
    endforeach()
  endforeach()
  target_link_options(${target} PRIVATE -lgcc)
endfunction()

# horo_plugin(NAME): everything under plugins/NAME but tests is the shared object libhoro_NAME.so, which lies beside
# libhoro. It uses the public interface, and horo_base, of which it has a copy. Tests are one program, as of a module.
function(horo_plugin name)
  file(GLOB_RECURSE all CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/plugins/${name}/*.cc)
  set(test_sources ${all})
  list(FILTER test_sources INCLUDE REGEX "_test\\.cc$")
  list(FILTER all EXCLUDE REGEX "_test\\.cc$")
  set(target horo_${name})
  add_library(${target} MODULE ${all})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${HORO_WARNINGS})
  horo_common_headers(${target})
  target_link_libraries(${target} PRIVATE horo horo_base)
  target_link_options(${target} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/libhoro.map)
  horo_place_code(${target} 0x40000)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${target} LIBRARY DESTINATION horo COMPONENT python)
  set_property(GLOBAL APPEND PROPERTY HORO_PLUGINS ${target})
  if(HORO_TESTS AND test_sources)
    horo_test(${name} SOURCES ${test_sources} ${all} LIBRARIES horo horo_base)
  endif()
endfunction()
