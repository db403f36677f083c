/* SPDX-License-Identifier: MIT
 *
 * record_tables: numbers of what a file lists inline before events name it: streams, strings, modules, stacks. Begun anew with
 * each file. Owned by the writer.
 */
#ifndef CLV_RECORD_TABLES_H
#define CLV_RECORD_TABLES_H

#include "../format/clv_encode.h"

#define CLV_NO_NUMBER UINT32_MAX

/* 64-bit keys to 32-bit numbers. */
struct clv_number_map {
	struct clv_number_slot {
		uint64_t key;
		uint32_t number; /* CLV_NO_NUMBER: empty */
	} *slots;
	size_t count, used; /* count: a power of two, or 0 */
};

struct clv_record_tables {
	struct clv_number_map stream_numbers, string_numbers; /* by handle; by a hash of 64 bits of the text */
	struct clv_number_map stack_numbers, module_numbers;  /* by the id in this process */
	struct clv_number_map address_modules;                /* return address to the module's id; 0: none */
	uint32_t modules_known;                               /* how many there were when that was filled */
	bool looked_anew;                                     /* for modules, since this was set to false */
	struct clv_table_counts {
		uint32_t streams, strings, modules, stacks;
	} counts, written; /* numbered so far; of them in records */
	/* new ones, not yet in a record */
	struct clv_buf new_streams;
	struct clv_encode_strings new_strings;
	struct clv_encode_modules new_modules;
	struct clv_encode_stacks new_stacks;
	uint64_t cost; /* bytes of the new ones, about */
};

/* What a new file begins with. */
void clv_tables_begin(struct clv_encoder *e, struct clv_record_tables *t);
void clv_tables_free(struct clv_encoder *e, struct clv_record_tables *t);

/* Numbers from 0 on; of a stack from 1 on, and 0 for id 0. When e->failed they mean nothing. */
uint32_t clv_tables_stream(struct clv_encoder *e, struct clv_record_tables *t, uint64_t handle);
uint32_t clv_tables_string(struct clv_encoder *e, struct clv_record_tables *t, const char *text, size_t len);
uint32_t clv_tables_stack(struct clv_encoder *e, struct clv_record_tables *t, uint32_t id);

/* Puts what is new into records of the chunk. */
void clv_tables_end(struct clv_encoder *e, struct clv_record_tables *t);

/* The chunk since the last clv_tables_kept() never comes: what it listed is listed again when it is named again. */
void clv_tables_kept(struct clv_record_tables *t);
void clv_tables_lost(struct clv_encoder *e, struct clv_record_tables *t);

#endif
