# The same bits on every machine: no products that are rounded only after the addition. And loops over elements that are
# worth vectors.
set_source_files_properties(horo/ddp/matrix.cc horo/ddp/int8.cc PROPERTIES COMPILE_OPTIONS
  "-O3;-ffp-contract=off;-fno-math-errno;-fno-trapping-math" SKIP_PRECOMPILE_HEADERS ON)
