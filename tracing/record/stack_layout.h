/* SPDX-License-Identifier: MIT
 *
 * stack_layout: where CPython keeps what a Python stack is made of: byte offsets in its structures, for each version
 * from 3.9 to 3.15. Those of 3.9 to 3.12 are a table; scripts/python_offsets computes it anew from CPython's headers.
 * From 3.13 on CPython publishes its own at the beginning of _PyRuntime, and the table has only what is missing there.
 * Owns nothing.
 */
#ifndef CLV_STACK_LAYOUT_H
#define CLV_STACK_LAYOUT_H

#include "../../src/base/base.h"

/* How a frame says which instruction it is at. */
enum clv_python_instruction {
	CLV_PYTHON_OFFSET_BYTES, /* 3.9: an int, the offset in the bytecode */
	CLV_PYTHON_OFFSET_UNITS, /* 3.10: the same in units of two bytes */
	CLV_PYTHON_POINTER,      /* a pointer into the bytecode */
};

enum clv_python_lines {
	CLV_PYTHON_LNOTAB,    /* 3.9: Objects/lnotab_notes.txt of that version */
	CLV_PYTHON_LINETABLE, /* 3.10: the same file of that version */
	CLV_PYTHON_LOCATIONS, /* from 3.11 on: Objects/locations.md, later InternalDocs/code_objects.md */
};

/* (field, what it is the offset of) */
#define CLV_PYTHON_LAYOUT_FIELDS(X)                                                                                    \
	X(runtime_finalizing) /* _PyRuntime: not 0 from the moment when other threads are torn down */                 \
	X(thread_frame)       /* PyThreadState: the innermost frame, or with thread_cframe what points at it */        \
	X(cframe_frame)       /* _PyCFrame, of 3.11 and 3.12: the innermost frame */                                   \
	X(frame_previous)                                                                                              \
	X(frame_code)                                                                                                  \
	X(frame_instruction)                                                                                           \
	X(frame_owner)        /* 0: this version has none */                                                           \
	X(code_filename)                                                                                               \
	X(code_name)                                                                                                   \
	X(code_lines)         /* the table of lines */                                                                 \
	X(code_firstlineno)                                                                                            \
	X(code_bytecode)      /* the instructions themselves; 0: the frame does not point at them */                   \
	X(code_version)       /* a number that no other code object has had, unless it is 0; 0: there is none */       \
	X(code_size)          /* tp_basicsize of code objects */                                                       \
	X(frame_size)         /* the same of frames where they are objects, else 0 */                                  \
	X(text_size)          /* the same of str */                                                                    \
	X(ascii_data)         /* str: the characters, if all are ASCII */                                              \
	X(text_data)          /* str: the characters, if not; both of compact ones */                                  \
	X(object_type)                                                                                                 \
	X(bytes_len)                                                                                                   \
	X(bytes_data)                                                                                                  \
	X(text_len)                                                                                                    \
	X(text_hash)          /* of the characters; -1: not known yet */                                               \
	X(text_state)         /* 2 bits, the kind in 3, compact in 1, ascii in 1 */

struct clv_python_layout {
	unsigned minor; /* 3.minor */
	bool thread_cframe;
	enum clv_python_instruction instruction;
	enum clv_python_lines lines;
	uint8_t owners; /* frame_owner: as many belong to Python code; the others are steps between C and Python */
#define X(field) uint16_t field;
	CLV_PYTHON_LAYOUT_FIELDS(X)
#undef X
};

/* The offsets of this version; `published`: the beginning of _PyRuntime, at least CLV_PYTHON_PUBLISHED_BYTES of it.
 * False, and a few words on why: the version is not known, or publishes what makes no sense, or has no GIL. */
#define CLV_PYTHON_PUBLISHED_BYTES 768u
bool clv_python_layout(unsigned minor, const void *published, struct clv_python_layout *out, const char **why);

#endif
