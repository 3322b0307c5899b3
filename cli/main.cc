// The program `horo`.
#include <exception>
#include <iostream>

#include "cli/command_line.h"

int main(int argc, char** argv) try {
  return horo::cli::run(argc, argv);
} catch (const std::exception& error) {  // Out of memory, for one.
  std::cerr << "horo: " << error.what() << "\n";
  return 1;
}
