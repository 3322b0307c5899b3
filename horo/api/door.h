/* horo: the door of a job that grows. Part of the C interface of libhoro.
 *
 * Processes that the launcher of an elastic job starts later (HORO_SEAT is set, HORO_RANK is not) wait in
 * horo_runtime_start() until the job takes them in. The job does so in a new generation: a runtime of its own, which
 * the ranks of the job and the newcomers start, while the old one is still there.
 *
 *   rank 0:     if (horo_door_news(door)) horo_door_look(door, &changes)      and tells the others
 *   rank 0:     horo_door_begin(door, &name)                                  and tells the others
 *   rank 0:     horo_door_admit(door, name, size)
 *   all ranks:  horo_runtime_start() with generation = name, predecessor = the old runtime, the same rank, and a size
 *               that counts the newcomers; they come behind the ranks of the job
 *   all ranks:  on success the old runtime is shut down; on failure it goes on as if nothing had been
 *
 * Either all members of a generation start it or none does; HORO_EVICTED: the others did, and this rank is left behind.
 * It ends early when the predecessor loses a rank. */
#ifndef HORO_API_DOOR_H_
#define HORO_API_DOOR_H_

#include "horo/api/horo.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct horo_door horo_door;

/* By seats (HORO_SEAT). Lives until the next look. */
typedef struct horo_changes {
  size_t struct_size;
  const int* newcomers; /* who wait */
  size_t newcomer_count;
  const int* leavers; /* whose slots are gone; they may have ended already */
  size_t leaver_count;
} horo_changes;

#define HORO_CHANGES_INIT \
  { sizeof(horo_changes), NULL, 0, NULL, 0 }

/* Connects to the store of the runtime's job. HORO_NOT_FOUND where the job has none: nobody can enter. */
horo_status* horo_door_open(horo_runtime* runtime, horo_door** door);
/* Whether somebody has come to the door, or is to leave, since the last look; waits for that up to `timeout` seconds.
 * -1: the store is gone, and will not come back; the log has said so. */
int horo_door_news(horo_door* door, double timeout);
horo_status* horo_door_look(horo_door* door, horo_changes* changes);
/* `name` has room for 32 characters. */
horo_status* horo_door_begin(horo_door* door, char* name);
/* Lets in the first `count` newcomers of the last look: a generation of `size` ranks, of which they are the last. If
 * that fails the generation is over, and whoever waits for it is told. */
horo_status* horo_door_admit(horo_door* door, const char* name, int size, size_t count);
void horo_door_close(horo_door* door);

/* For whoever starts the processes, and serves the store where they meet. This process's slot is gone: it leaves when
 * the job commits next. */
horo_status* horo_store_ask_to_leave(horo_store* store, int seat, const char* why);
/* A process that was to enter the job has ended: nobody waits for it. Nothing happens if it was in. */
horo_status* horo_store_newcomer_ended(horo_store* store, int seat);

#ifdef __cplusplus
}
#endif

#endif /* HORO_API_DOOR_H_ */
