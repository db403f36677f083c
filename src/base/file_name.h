/* SPDX-License-Identifier: MIT
 *
 * file_name: names of files that several processes write with one setting: %p stands for the process id, %r for the rank,
 * %% for a percent sign. Owns nothing; allocates nothing.
 *
 * The rank is what the launcher says in the environment: the first of RANK (torchrun), OMPI_COMM_WORLD_RANK (Open MPI),
 * PMIX_RANK, PMI_RANK (MPICH, Intel MPI), MV2_COMM_WORLD_RANK (MVAPICH2) and SLURM_PROCID (srun) that is a number; 0 if none
 * is, as of a program that was started alone.
 */
#ifndef CLV_FILE_NAME_H
#define CLV_FILE_NAME_H

#include "error.h"

/* True if the pattern can be expanded: it is not empty, and has no other letter after a percent sign. */
bool clv_file_name_check(const char *pattern, struct clv_error *err);

/* The name for this process. False, with `out` empty: the pattern makes no sense, or the name does not fit into `room`. */
bool clv_file_name_expand(const char *pattern, char *out, size_t room, struct clv_error *err);

/* The rank of this process; `known` (may be NULL): the environment says one. */
uint32_t clv_process_rank(bool *known);

#endif
