/* SPDX-License-Identifier: MIT
 *
 * ipc: blocks of our heap in other processes, through cuIpcGetMemHandle, cuIpcOpenMemHandle and cuIpcCloseMemHandle. The
 * driver's own handles know nothing of mapped memory, so ours name a socket of the exporting process and a block; the
 * importing process asks there for descriptors of the block's frames. Handles and memory that are not ours are the
 * driver's affair, in both directions.
 *
 *   ipc_serve.c  the exporting side: the table of exported blocks, and a thread that answers
 *   ipc_open.c   the importing side: the table of blocks that are open here
 *   ipc_wire.h   what goes between them
 *
 * - A handle names a block, whichever address inside it was asked about, and is the same as long as the block lives;
 *   opening it gives the start of the block, as the driver does.
 * - Frames are handed over whole. Where a block shares its first or its last frame with neighbours, the importing process
 *   can reach their bytes as well, as it can with small blocks of cuMemAlloc. Only processes of the same user, or root's,
 *   are answered.
 * - Both processes must be in one network namespace, whose sockets they see, and the importing one must see the device.
 * - A handle dies with its block. A mapping stays valid when the exporting process frees the block or ends; what is in it
 *   is then undefined.
 *
 * Each side has mutexes for its table (ipc_serve.c, ipc_open.c). No call waits longer than clv_ipc_patience_ms for
 * an answer of another process.
 */
#ifndef CLV_IPC_H
#define CLV_IPC_H

#include "preload.h"

/* The block that starts here is about to be freed: its handle is retired. One load if nothing like it was exported. */
void clv_ipc_block_freed(CUdeviceptr ptr);

/* What is open here: the block that contains `ptr`; false: none does. `start` and `size` may be NULL. As the rest not for
 * the child of a fork, which has no clv_process_if_open(). */
bool clv_ipc_opened(CUdeviceptr ptr, CUdeviceptr *start, size_t *size);

/* The context is gone, and all work in it is done: what was opened in it is closed. */
void clv_ipc_context_gone(const struct clv_process *p, CUcontext context);

/* More devices may touch the memory of this one: what is open here of it is given access again. */
void clv_ipc_access(const struct clv_process *p, int device);

/* In the child of a fork, which does not answer for its parent. */
void clv_ipc_in_child(void);

#endif
