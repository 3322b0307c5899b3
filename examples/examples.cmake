# Included after every example has become a target: each also runs as a test, small.
target_compile_options(example_train PRIVATE $<$<CONFIG:RelWithDebInfo>:-O3>)

if(HORO_TESTS)
  # example_test(NAME PROGRAM ARGUMENTS...): passes if the program ends with 0.
  function(example_test name program)
    add_test(NAME example_${name} COMMAND example_${program} ${ARGN})
    set_tests_properties(example_${name} PROPERTIES TIMEOUT 60)
  endfunction()

  example_test(hello hello --ranks 3)
  example_test(hello_alone hello --ranks 1)
  example_test(hello_refuses_nonsense hello --ranks many)
  set_tests_properties(example_hello_refuses_nonsense PROPERTIES PASS_REGULAR_EXPRESSION "not a number from 1 to 256")

  example_test(train train --ranks 2 --seconds 1 --steps 80 --batch 64 --hidden 64)
  set_tests_properties(example_train PROPERTIES PASS_REGULAR_EXPRESSION "all 2 ranks hold the same parameters.*speed-up")
endif()
