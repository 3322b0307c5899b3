# libhoro, made of all modules, and what is installed with it; the program horo; the examples.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(modules GLOBAL PROPERTY HORO_COMPILED_MODULES)
# What runs when a job begins and ends lies behind what runs in every operation (horo_place_code).
list(REMOVE_ITEM modules horo_net horo_rendezvous horo_ddp)
list(APPEND modules horo_net horo_rendezvous horo_ddp)
set(objects)
foreach(module IN LISTS modules)
  list(APPEND objects $<TARGET_OBJECTS:${module}>)
endforeach()

add_library(horo SHARED ${objects})
add_library(horo::horo ALIAS horo)
set(exports ${PROJECT_SOURCE_DIR}/cmake/libhoro.map)
set_target_properties(horo PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE CXX
                                      LINK_DEPENDS ${exports})
target_include_directories(horo INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                          $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(horo INTERFACE cxx_std_20)
target_link_libraries(horo PRIVATE OpenSSL::SSL Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(horo PRIVATE -Wl,--version-script=${exports})
horo_place_code(horo 0x200000)
if(NOT HORO_SANITIZE AND NOT HORO_FUZZ)
  target_link_options(horo PRIVATE -Wl,-z,defs)
endif()

foreach(header horo.h horo.hpp ddp.h ddp.hpp devices.h door.h messages.h observe.h)
  list(APPEND headers ${PROJECT_SOURCE_DIR}/horo/api/${header})
endforeach()
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/horo)
install(TARGETS horo EXPORT horoTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/horo/api COMPONENT development)
install(EXPORT horoTargets NAMESPACE horo:: DESTINATION ${package_folder} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/horoConfig.cmake.in ${CMAKE_BINARY_DIR}/horoConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/horoConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/horoConfig.cmake ${CMAKE_BINARY_DIR}/horoConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT development)
configure_file(${PROJECT_SOURCE_DIR}/cmake/horo.pc.in ${CMAKE_BINARY_DIR}/horo.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/horo.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# The program horo from cli/, and one program per file in examples/. The examples link the shared library, as a user's
# program would; the program links the modules and so needs no installed library.
function(horo_programs)
  get_property(modules GLOBAL PROPERTY HORO_MODULES)
  file(GLOB_RECURSE cli CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.cc)
  set(cli_tests ${cli})
  list(FILTER cli_tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER cli EXCLUDE REGEX "(_test|/main)\\.cc$")
  if(EXISTS ${PROJECT_SOURCE_DIR}/cli/main.cc)
    find_package(CLI11 REQUIRED)
    find_package(nlohmann_json 3.10 REQUIRED)
    find_path(HORO_YAML_INCLUDE yaml.h REQUIRED)
    # The archive where there is one: the program of the wheel runs where libyaml is not installed.
    find_library(HORO_YAML_LIBRARY NAMES libyaml.a yaml REQUIRED)
    add_library(horo_cli_parts OBJECT ${cli})
    target_include_directories(horo_cli_parts PUBLIC ${PROJECT_SOURCE_DIR})
    target_compile_options(horo_cli_parts PRIVATE ${HORO_WARNINGS} $<$<CONFIG:RelWithDebInfo>:-O1>)
    horo_common_headers(horo_cli_parts)
    target_include_directories(horo_cli_parts PRIVATE ${HORO_YAML_INCLUDE})
    target_link_libraries(horo_cli_parts PUBLIC ${modules} CLI11::CLI11 nlohmann_json::nlohmann_json
      ${HORO_YAML_LIBRARY})
    horo_program(horo_cli SOURCES ${PROJECT_SOURCE_DIR}/cli/main.cc LIBRARIES horo_cli_parts)
    set_target_properties(horo_cli PROPERTIES OUTPUT_NAME horo RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
    install(TARGETS horo_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
    if(HORO_TESTS AND cli_tests)
      horo_test(cli STARTS_PROCESSES SOURCES ${cli_tests} LIBRARIES horo_cli_parts)
      add_dependencies(horo_cli_test horo_cli)  # Which it runs.
      set_source_files_properties(${PROJECT_SOURCE_DIR}/cli/run/flag_table_test.cc PROPERTIES
        COMPILE_DEFINITIONS HORO_LAUNCHER_PAGE="${PROJECT_SOURCE_DIR}/docs/launcher.md")
    endif()
  endif()

  file(GLOB examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.cc)
  if(HORO_EXAMPLES)
    foreach(source IN LISTS examples)
      get_filename_component(name ${source} NAME_WE)
      horo_program(example_${name} SOURCES ${source} LIBRARIES horo Threads::Threads)
      set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name}
                                                       RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/examples)
    endforeach()
    include(${PROJECT_SOURCE_DIR}/examples/examples.cmake OPTIONAL)
  endif()
endfunction()
