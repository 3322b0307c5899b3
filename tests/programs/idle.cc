// A spawned worker: it does nothing until its standard input ends.
#include <unistd.h>

int main() {
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
