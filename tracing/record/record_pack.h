/* SPDX-License-Identifier: MIT
 *
 * record_pack: makes zstd frames. libzstd is opened at run time, to itself, since a library that goes under any program must
 * need libc alone; where it is missing, frames are made by hand, of blocks as they are: any reader of zstd takes them. Owned
 * by one thread, but for the library itself, which is looked for once in a process.
 */
#ifndef CLV_RECORD_PACK_H
#define CLV_RECORD_PACK_H

#include "../format/clv_encode.h"

struct clv_packer {
	void *context; /* of libzstd; NULL: none */
	bool looked;
};

/* Packs all of `raw` behind what is in `out`. False: host memory is out. */
bool clv_pack(struct clv_packer *p, struct clv_encoder *e, const struct clv_buf *raw, struct clv_buf *out);

/* The same without the library. */
bool clv_pack_plain(struct clv_encoder *e, const struct clv_buf *raw, struct clv_buf *out);

void clv_packer_clear(struct clv_packer *p);

/* In the child of a fork(): a thread that looked for the library then is not there. */
void clv_pack_forked(void);

/* Tests: as if the library were missing. */
void clv_pack_without_library(void);

#endif
