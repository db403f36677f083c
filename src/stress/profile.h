/* SPDX-License-Identifier: MIT
 *
 * profile: named workloads that are hard on an allocator's fragmentation, as histories that any policy replays. A
 * history follows from its name, the seed and the capacity. Holds no state.
 */
#ifndef CLV_PROFILE_H
#define CLV_PROFILE_H

#include "../../tracing/replay/replay.h"

#define CLV_PROFILE_CAPACITY (140 * CLV_GIB) /* the usual device */
#define CLV_PROFILE_SMALLEST (24 * CLV_GIB)  /* below it the workloads lose their shape */
#define CLV_PROFILE_EVENT_LAG_US 1000        /* a block freed on one stream is complete for others so much later */

struct clv_profile;

const struct clv_profile *clv_profile_at(size_t index);       /* NULL: there are no more */
const struct clv_profile *clv_profile_find(const char *name); /* NULL: there is none */
const char *clv_profile_name(const struct clv_profile *profile);
const char *clv_profile_about(const struct clv_profile *profile); /* half a line */

/* The history, of device 0; free it with clv_trace_free. `live_at_end` gets the bytes live after it, each block
 * rounded up to 512 B. NULL: host memory is out. */
struct clv_trace *clv_profile_make(const struct clv_profile *profile, uint64_t seed, uint64_t capacity,
				   uint64_t *live_at_end, struct clv_error *err);

#endif
