/* SPDX-License-Identifier: MIT
 *
 * ipc_wire: what goes between an exporting and an importing process. The socket is an abstract Unix one of packets
 * (SOCK_SEQPACKET), named after the token in the handle. The importer sends a request and gets one reply, with the
 * descriptors of some of the frames, and asks again from where these end. Owns no state.
 *
 * Both processes run on one machine, so numbers are as the machine has them. What comes from the other side is checked.
 */
#ifndef CLV_IPC_WIRE_H
#define CLV_IPC_WIRE_H

#include "../driver/cuda_abi.h"

#include "../live/service.h"

#include <stdio.h>
#include <string.h>

#define CLV_IPC_MAGIC 0x5049455641454c43ull /* "CLEAVEIP" */
#define CLV_IPC_VERSION 1u

/* Of the importer for the whole of an opening, of the exporter for the next request of a connection. */
extern int clv_ipc_patience_ms; /* tests shorten it */

/* Descriptors in a reply: the kernel takes 253, and the process may have few to spare. */
#define CLV_IPC_BATCH 64u

struct clv_ipc_id {
	uint8_t bytes[16];
};

/* What a CUipcMemHandle of ours holds. */
struct clv_ipc_handle {
	uint64_t magic;
	uint32_t version;
	int32_t pid;             /* of the exporting process, to be named in messages only */
	struct clv_ipc_id token; /* of the process */
	struct clv_ipc_id key;   /* of the block */
	uint64_t size;           /* of the block */
	uint64_t check;          /* of all before it */
};
_Static_assert(sizeof(struct clv_ipc_handle) == CU_IPC_HANDLE_SIZE, "a handle fills a CUipcMemHandle");

struct clv_ipc_request {
	uint64_t magic;
	uint32_t version;
	uint32_t first; /* frame of the block, from 0 */
	struct clv_ipc_id key;
};

enum clv_ipc_status {
	CLV_IPC_GIVEN,          /* `count` descriptors come with it, one or more */
	CLV_IPC_NOT_EXPORTED,   /* the block was freed, or never was */
	CLV_IPC_OTHER_USER,     /* the importer is of another user */
	CLV_IPC_NO_DESCRIPTORS, /* `why`: the driver's answer, 0: the process has none left */
	CLV_IPC_BAD_REQUEST,    /* or one of another version */
};

struct clv_ipc_reply {
	uint64_t magic;
	uint32_t version;
	uint32_t status; /* the rest is set if CLV_IPC_GIVEN */
	uint32_t why;
	uint32_t count;                /* frames from request.first on that are given now */
	uint64_t frames;               /* of the block */
	uint64_t span;                 /* bytes of all of them */
	uint64_t offset;               /* of the block in the first */
	uint64_t size;                 /* of the block */
	uint64_t bytes[CLV_IPC_BATCH]; /* of each frame that is given */
};

static inline bool clv_ipc_same(const struct clv_ipc_id *a, const struct clv_ipc_id *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static inline uint64_t clv_ipc_check(const struct clv_ipc_handle *h)
{
	uint64_t words[sizeof(*h) / 8 - 1], sum = 0;
	memcpy(words, h, sizeof(words));
	for (unsigned i = 0; i < CLV_ARRAY_LEN(words); i++)
		sum = clv_mix64(sum + words[i]);
	return sum;
}

#define CLV_IPC_NAME (sizeof("cleave-") + 2 * sizeof(struct clv_ipc_id))

/* The name of a process's socket. */
static inline void clv_ipc_name(const struct clv_ipc_id *token, char name[CLV_IPC_NAME])
{
	int len = snprintf(name, CLV_IPC_NAME, "cleave-");
	for (unsigned i = 0; i < sizeof(token->bytes); i++)
		len += snprintf(name + len, 3, "%02x", token->bytes[i]);
}

/* Its address, and the length of that. */
static inline socklen_t clv_ipc_address(const struct clv_ipc_id *token, struct sockaddr_un *out)
{
	char name[CLV_IPC_NAME];
	clv_ipc_name(token, name);
	return clv_service_address(name, out);
}

/* The token is that of this process (ipc_serve.c). */
bool clv_ipc_own_token(const struct clv_ipc_id *token);

#endif
