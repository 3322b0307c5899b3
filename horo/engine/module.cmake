# The same bits on every machine: no products that are rounded only after the addition.
set_source_files_properties(horo/engine/adasum.cc PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
