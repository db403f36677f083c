/* SPDX-License-Identifier: MIT
 *
 * plan_file: a plan as `cleave plan -o PLAN` writes it, read and checked. Owns its arrays; immutable once read, no lock.
 *
 * Reading is strict about what decides sizes: what is there must agree (a buffer's bytes with its shape, strides and
 * dtype) and be within limits, or the error names the file, the member and what was expected. Members that are not named
 * here are left alone, so that newer plans can be read.
 */
#ifndef CLV_PLAN_FILE_H
#define CLV_PLAN_FILE_H

#include "../base/error.h"

#include <cleave/plan.h>

#define CLV_PLAN_VERSION 1
#define CLV_PLAN_FILE_MAX (16 * CLV_MIB)
#define CLV_PLAN_BUFFERS_MAX 64
#define CLV_PLAN_RESERVATIONS_MAX 4096
#define CLV_PLAN_NAME 64
#define CLV_PLAN_BYTES_MAX ((uint64_t)1 << 48) /* of one buffer or slot; the heap refuses more as well */

/* A buffer of one layer. */
struct clv_plan_file_buffer {
	char name[CLV_PLAN_NAME];
	enum cleave_dtype dtype;
	uint32_t dims;
	uint64_t shape[CLEAVE_PLAN_DIMS], strides[CLEAVE_PLAN_DIMS]; /* in elements */
	uint64_t bytes;
	uint32_t experts;      /* runs of equal length that it consists of: the rank's experts, or 1 */
	uint64_t expert_bytes; /* of such a run */
	bool zeroed;           /* to be filled with zeros before its experts are: parts of it are padding */
	bool same;             /* the conversion leaves it as it was loaded */
};

/* Room for `count` requests of `bytes` at a time, after the first `after_n` of them, until `uses` more have come (0: for good). */
struct clv_plan_file_reservation {
	char name[CLV_PLAN_NAME];
	uint64_t bytes, count, after_n, uses;
	bool hard;
};

struct clv_plan_file {
	char *path;
	char model[CLV_PLAN_NAME], backend[CLV_PLAN_NAME], strategy[CLV_PLAN_NAME]; /* cut off if longer; "" if absent */
	uint32_t rank;
	uint32_t moe_layers, layers; /* of the model; of them, those of this rank that have the buffers */
	uint32_t experts;            /* of the rank */
	struct clv_plan_file_buffer *buffers;
	size_t buffer_count;
	uint64_t layer_bytes;   /* of all buffers of a layer */
	uint64_t weights_bytes; /* as the plan says: of all layers of the rank; 0 if it does not */
	struct clv_plan_file_reservation *reservations;
	size_t reservation_count;
};

#define CLV_PLAN_OWN_RANK UINT32_MAX

/* False with `err`: the file cannot be read, is no plan, or says what cannot be. A plan of all ranks (`cleave plan --rank all`)
 * is read for one of them, any other only for the rank that it is of; CLV_PLAN_OWN_RANK: for the one that it speaks of
 * itself, which is the one that needs the most. */
bool clv_plan_file_read_rank(struct clv_plan_file *f, const char *path, uint32_t rank, struct clv_error *err);

static inline bool clv_plan_file_read(struct clv_plan_file *f, const char *path, struct clv_error *err)
{
	return clv_plan_file_read_rank(f, path, CLV_PLAN_OWN_RANK, err);
}

/* The same from a text; `path` is for messages. */
bool clv_plan_file_parse(struct clv_plan_file *f, const char *path, const char *text, size_t len, uint32_t rank,
			 struct clv_error *err);

/* Also of one that was not read, if it is all zeros. */
void clv_plan_file_free(struct clv_plan_file *f);

#endif
