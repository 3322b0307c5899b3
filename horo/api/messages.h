/* horo: messages between two ranks, in no order with the operations of their groups. Part of the C interface of
 * libhoro.
 *
 * A message has a sender, a receiver, a group and a tag. A receive gets the first message that was sent with its group
 * and tag by whom it names, however many others are under way, in both directions, from any thread. Nothing waits for
 * a collective, and no order of sends and receives can block another. Messages with a rank that is lost or has left
 * fail; all others go on.
 */
#ifndef HORO_API_MESSAGES_H_
#define HORO_API_MESSAGES_H_

#include "horo/api/horo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called once by all ranks of the job, where they make the same calls in the same order. */
horo_status* horo_messages_open(horo_engine* engine);

/* Sends to a member of `group`, a group of this engine. Done once all of it has left this rank: what is large waits for
 * its receiver. The memory must stay as it is until then. `timeout` in seconds; 0: none. `callback` as in
 * horo_group_submit; may be NULL. */
horo_status* horo_message_send(horo_engine* engine, horo_group* group, int to, uint64_t tag, const void* memory,
                               size_t bytes, double timeout, horo_callback callback, void* context,
                               horo_request** request);
/* Receives from a member of `group`, or, with -1, from whoever sends first. A message of another length is a
 * HORO_MISMATCH. */
horo_status* horo_message_receive(horo_engine* engine, horo_group* group, int from, uint64_t tag, void* memory,
                                  size_t bytes, double timeout, horo_callback callback, void* context,
                                  horo_request** request);
/* The member that a message came from, once it is there; -1 for everything else. */
int horo_request_source(const horo_request* request);

#ifdef __cplusplus
}
#endif

#endif /* HORO_API_MESSAGES_H_ */
