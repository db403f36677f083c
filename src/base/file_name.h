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

/* The pattern that stands for this name alone. False: it does not fit. */
bool clv_file_name_escape(const char *name, char *out, size_t room);

/* The pattern for a further process, where files of the name are there: "a.clv" becomes "a.%p.clv", "a" "a.%p.clv", so that it
 * cannot be taken for one of "a.clv.1", ...; where that is there as well, since ids come again (in each container the same), the
 * `nth` from 2 on is "a.%p-2.clv". False: it does not fit. */
bool clv_file_name_further(const char *pattern, unsigned nth, char *out, size_t room);

/* True if `name` is `first` with a number behind it: the file that follows it at its limit. */
bool clv_file_name_is_later(const char *first, const char *name);

/* True if a process can have made the file `name` of the pattern, first, further or later. */
bool clv_file_name_is_of(const char *pattern, const char *name);

/* The name as it is to be found from any folder; as it is where the folder has no name or there is no room for that. */
void clv_file_name_absolute(const char *name, char *out, size_t room);

/* The rank of this process; `known` (may be NULL): the environment says one. */
uint32_t clv_process_rank(bool *known);

#endif
