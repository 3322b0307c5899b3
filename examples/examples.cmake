# Included after every example has become a target: each also runs as a test, small.
target_compile_options(example_train PRIVATE $<$<CONFIG:RelWithDebInfo>:-O3>)

# The C interface, held to C99.
add_executable(example_hello_c ${PROJECT_SOURCE_DIR}/examples/hello_c.c)
target_link_libraries(example_hello_c PRIVATE horo)
target_compile_options(example_hello_c PRIVATE -Wall -Wextra -Wpedantic)
set_target_properties(example_hello_c PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF LINKER_LANGUAGE CXX OUTPUT_NAME hello_c
                                                 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/examples)

if(HORO_TESTS)
  # example_test(NAME PROGRAM ARGUMENTS...): passes if the program ends with 0.
  function(example_test name program)
    add_test(NAME example_${name} COMMAND example_${program} ${ARGN})
    set_tests_properties(example_${name} PROPERTIES TIMEOUT 60)
  endfunction()

  example_test(hello hello --ranks 3)
  example_test(hello_c hello_c)
  example_test(hello_alone hello --ranks 1)
  example_test(hello_refuses_nonsense hello --ranks many)
  set_tests_properties(example_hello_refuses_nonsense PROPERTIES PASS_REGULAR_EXPRESSION "not a number from 1 to 256")

  example_test(train train --ranks 2 --seconds 1 --steps 80 --batch 64 --hidden 64)
  example_test(probe probe --ranks 2 --sizes 4,64K,1M --ms 20)
  example_test(probe_over_sockets probe --ranks 2 --sizes 4,64K,1M --ms 20)
  example_test(survive survive --ranks 3)
  example_test(survive_over_sockets survive --ranks 4)
  set_tests_properties(example_probe_over_sockets example_survive_over_sockets PROPERTIES ENVIRONMENT HORO_TRANSPORT=tcp)
endif()
