/* SPDX-License-Identifier: MIT
 *
 * witness: a driver between the heap and another driver that knows what memory really is: which physical bytes stand behind
 * each address, which stream has used them up to when, and what each stream and the host have waited for. It tells when a
 * block is given that overlaps a live one or that work not ordered before it may still use, and when an address is unmapped
 * that a block or such work needs. For tests with one thread.
 *
 * What counts as ordered is what can be known through the driver: the same stream, a stream made to wait for an event, and
 * events or streams that were seen to be complete.
 */
#ifndef CLV_WITNESS_H
#define CLV_WITNESS_H

#include "../src/driver/driver.h"

struct witness;

/* Does not own `inner`. NULL: host memory is out. */
struct witness *witness_open(struct clv_driver *inner);
void witness_close(struct witness *w);
struct clv_driver *witness_driver(struct witness *w);

/* The first wrong thing as a sentence, or NULL. */
const char *witness_wrong(const struct witness *w);

/* A block was given in the order of a stream. */
void witness_given(struct witness *w, uint64_t addr, uint64_t size, cleave_stream stream);

/* A block is about to be freed in the order of a stream; before cleave_free, which may record an event. */
void witness_freed(struct witness *w, uint64_t addr, uint64_t size, cleave_stream stream);

/* Makes `later` wait for all work on `earlier` so far, as a program does before it uses a block on another stream. */
void witness_order(struct witness *w, cleave_stream earlier, cleave_stream later);

/* Bytes of the frames of a device: all that exist, and those that hold a byte of a live block. */
uint64_t witness_held(const struct witness *w, int device);
uint64_t witness_pinned(const struct witness *w, int device);

/* True if all use of streams that was ever freed in [addr, addr + size) is seen to be complete, for the memory mapped there. */
bool witness_complete(const struct witness *w, uint64_t addr, uint64_t size);

uint64_t witness_calls(const struct witness *w, enum clv_call call); /* that reached the inner driver */

#endif
