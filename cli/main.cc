// The program `horo`.
#include "cli/command_line.h"

int main(int argc, char** argv) { return horo::cli::run(argc, argv); }
