/* SPDX-License-Identifier: MIT */
#include "stack_layout.h"

#include <string.h>

/* What has not changed in all these versions, on machines of 64 bits. */
#define COMMON                                                                                                         \
	.object_type = 8, .bytes_len = 16, .bytes_data = 32, .text_len = 16, .text_hash = 24, .text_state = 32
#define CODE_TO_3_10                                                                                                   \
	.code_filename = 104, .code_name = 112, .code_lines = 120, .code_firstlineno = 40, .code_size = 176
#define CODE_FROM_3_11 .code_filename = 112, .code_name = 120, .code_lines = 136
#define TEXT_TO_3_11 .text_size = 80, .ascii_data = 48, .text_data = 72

static const struct clv_python_layout known[] = {
	{COMMON, .minor = 9, .instruction = CLV_PYTHON_OFFSET_BYTES, .lines = CLV_PYTHON_LNOTAB,
	 .runtime_finalizing = 16, .thread_frame = 24,
	 .frame_previous = 24, .frame_code = 32, .frame_instruction = 104, .frame_size = 368,
	 CODE_TO_3_10, TEXT_TO_3_11},
	{COMMON, .minor = 10, .instruction = CLV_PYTHON_OFFSET_UNITS, .lines = CLV_PYTHON_LINETABLE,
	 .runtime_finalizing = 16, .thread_frame = 24,
	 .frame_previous = 24, .frame_code = 32, .frame_instruction = 96, .frame_size = 360,
	 CODE_TO_3_10, TEXT_TO_3_11},
	{COMMON, .minor = 11, .instruction = CLV_PYTHON_POINTER, .lines = CLV_PYTHON_LOCATIONS,
	 .runtime_finalizing = 24, .thread_frame = 56, .thread_cframe = true, .cframe_frame = 8,
	 .frame_previous = 48, .frame_code = 32, .frame_instruction = 56, .frame_owner = 69, .owners = 3,
	 CODE_FROM_3_11, .code_firstlineno = 72, .code_bytecode = 184, .code_size = 184, TEXT_TO_3_11},
	{COMMON, .minor = 12, .instruction = CLV_PYTHON_POINTER, .lines = CLV_PYTHON_LOCATIONS,
	 .runtime_finalizing = 24, .thread_frame = 56, .thread_cframe = true, .cframe_frame = 0,
	 .frame_previous = 8, .frame_code = 0, .frame_instruction = 56, .frame_owner = 70, .owners = 3,
	 CODE_FROM_3_11, .code_firstlineno = 68, .code_bytecode = 192, .code_version = 92, .code_size = 192,
	 .text_size = 64, .ascii_data = 40, .text_data = 56},
};

/* ---- published ---- */

#define FREE_THREADED 2u
#define FINALIZING 4u

/* Where in _Py_DebugOffsets, an array of 64-bit numbers, the groups begin that are read here. Versions insert some. */
struct groups {
	unsigned minor;
	uint8_t thread, frame, code, object, bytes, text;
};

static const struct groups published_groups[] = {
	{.minor = 13, .thread = 19, .frame = 28, .code = 34, .object = 44, .bytes = 64, .text = 67},
	{.minor = 14, .thread = 22, .frame = 31, .code = 39, .object = 50, .bytes = 74, .text = 77},
	{.minor = 15, .thread = 22, .frame = 39, .code = 47, .object = 58, .bytes = 86, .text = 89},
};

static uint64_t number_at(const void *published, unsigned index)
{
	uint64_t v;
	memcpy(&v, (const char *)published + index * sizeof(v), sizeof(v));
	return v;
}

/* An offset; what is none makes *ok false. Only what stands first in a structure may be at 0. */
static uint16_t offset_at(const void *published, unsigned index, bool may_be_first, bool *ok)
{
	uint64_t v = number_at(published, index);
	if (v > INT16_MAX || (v == 0 && !may_be_first))
		*ok = false;
	return (uint16_t)v;
}

/* The parts of a group stand in the order of the structures in pycore_runtime.h and pycore_debug_offsets.h. */
static bool read_published(const struct groups *g, const void *published, struct clv_python_layout *l)
{
	bool ok = true;
#define AT(index) offset_at(published, index, false, &ok)
	*l = (struct clv_python_layout){
		.minor = g->minor,
		.instruction = CLV_PYTHON_POINTER,
		.lines = CLV_PYTHON_LOCATIONS,
		.owners = 3, /* of a thread, a generator, a frame object */
		.runtime_finalizing = AT(FINALIZING),
		.thread_frame = AT(g->thread + 4),
		.frame_previous = AT(g->frame + 1),
		.frame_code = offset_at(published, g->frame + 2, true, &ok),
		.frame_instruction = AT(g->frame + 3),
		.frame_owner = AT(g->frame + 5),
		.code_filename = AT(g->code + 1),
		.code_name = AT(g->code + 2),
		.code_lines = AT(g->code + 4),
		.code_firstlineno = AT(g->code + 5),
		.code_bytecode = AT(g->code + 9),
		.code_size = AT(g->code + 9),
		.code_version = AT(g->code + 7), /* of the names of locals, before which it stands */
		.object_type = AT(g->object + 1),
		.bytes_len = AT(g->bytes + 1),
		.bytes_data = AT(g->bytes + 2),
		.text_state = AT(g->text + 1),
		.text_len = AT(g->text + 2),
		.ascii_data = AT(g->text + 3),
	};
#undef AT
	l->code_version -= 4;
	l->text_hash = l->text_len + 8;
	l->text_data = l->ascii_data + 16; /* the length of a copy as UTF-8 and its address */
	l->text_size = l->ascii_data + 24; /* and for other forms the address of the characters */
	return ok;
}

bool clv_python_layout(unsigned minor, const void *published, struct clv_python_layout *out, const char **why)
{
	for (size_t i = 0; i < CLV_ARRAY_LEN(known); i++)
		if (known[i].minor == minor) {
			*out = known[i];
			return true;
		}
	*why = "its structures are not known";
	for (size_t i = 0; i < CLV_ARRAY_LEN(published_groups); i++) {
		if (published_groups[i].minor != minor)
			continue;
		uint64_t version = number_at(published, 1);
		*why = "what it publishes of its structures makes no sense";
		if (memcmp(published, "xdebugpy", 8) != 0 || version >> 16 != (3u << 8 | minor))
			return false;
		if (number_at(published, FREE_THREADED)) {
			*why = "it has no global interpreter lock";
			return false;
		}
		return read_published(&published_groups[i], published, out);
	}
	return false;
}
