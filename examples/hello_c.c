/* hello in C: start, one allreduce, and what to do with a status. Started alone it is a job of one rank; start the
 * ranks of a larger one with a launcher, or by hand with HORO_RANK, HORO_SIZE and HORO_STORE. */
#include <stdio.h>

#include "horo/api/horo.h"

/* 1 if `status` is a failure. */
static int failed(const char* what, horo_status* status) {
  if (status == NULL) return 0;
  fprintf(stderr, "hello_c: %s: %s\n", what, horo_status_message(status));
  horo_status_free(status);
  return 1;
}

int main(void) {
  horo_engine_options options = HORO_ENGINE_OPTIONS_INIT; /* Rank, size, store and key: from HORO_* variables. */
  horo_engine* engine = NULL;
  double sum;
  int rank, size, wrong;

  if (failed("joining the job", horo_engine_start(&options, &engine))) return 1;
  rank = horo_engine_rank(engine);
  size = horo_engine_size(engine);
  sum = rank + 1;
  wrong = failed("allreduce", horo_allreduce(horo_engine_world(engine), &sum, &sum, 1, HORO_F64, HORO_SUM));
  if (!wrong) printf("%s: rank %d of %d: 1 + ... + %d = %g\n", horo_version(), rank, size, size, sum);
  wrong = wrong || sum != size * (size + 1) / 2.0;
  horo_engine_destroy(engine);
  return wrong;
}
