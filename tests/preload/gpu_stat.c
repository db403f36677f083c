/* SPDX-License-Identifier: MIT
 *
 * A program that does what it is told, a line each, while others look at it: says what came of it in a line.
 *
 *   alloc BYTES   the number of the block, or the driver's error
 *   free N        ok
 *   sync          ok, when all work is done
 *   fork          the id of a child, which ends when the program does
 *   careless      closes all descriptors that it has not opened, as daemons do: how many there were
 *   work ROUNDS   random work on two streams: ok
 */
#include "gpu.h"

#include <string.h>
#include <unistd.h>

#define BLOCKS 64

static CUdeviceptr blocks[BLOCKS];
static unsigned count;
static CUstream streams[2];

static void fork_child(void)
{
	int ends[2];
	GPU_TRUE(!pipe(ends)); /* of which the parent keeps one until it ends */
	pid_t child = fork();
	GPU_TRUE(child >= 0);
	if (!child) {
		char byte;
		close(ends[1]);
		close(STDIN_FILENO);
		_exit(read(ends[0], &byte, 1) != 0);
	}
	close(ends[0]);
	printf("%ld\n", (long)child);
}

static int close_all(void)
{
	int closed = 0;
	for (int fd = 3; fd < 256; fd++)
		closed += !close(fd);
	return closed;
}

int main(int argc, char **argv)
{
	char line[128];
	if (argc > 2 && !strcmp(argv[2], "idle")) { /* has CUDA, and no memory */
		gpu_find(argc, argv);
		printf("ready\n");
		return fgets(line, sizeof(line), stdin) != NULL;
	}
	gpu_open(argc, argv);
	for (int i = 0; i < 2; i++)
		GPU(cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		unsigned long long n = 0;
		char word[16] = "";
		GPU_TRUE(sscanf(line, "%15s %llu", word, &n) >= 1);
		if (!strcmp(word, "alloc") && count < BLOCKS) {
			CUresult r = cu.cuMemAllocAsync(&blocks[count], n, streams[0]);
			if (r == CUDA_SUCCESS)
				printf("%u\n", count++);
			else
				printf("error %d\n", (int)r);
		} else if (!strcmp(word, "free") && n < count) {
			GPU(cu.cuMemFreeAsync(blocks[n], streams[0]));
			printf("ok\n");
		} else if (!strcmp(word, "sync")) {
			GPU(cu.cuCtxSynchronize());
			printf("ok\n");
		} else if (!strcmp(word, "fork")) {
			fork_child();
		} else if (!strcmp(word, "careless")) {
			printf("%d\n", close_all());
		} else if (!strcmp(word, "work")) {
			gpu_work(n, (unsigned)n, 16, 1 << 20, streams, 2);
			printf("ok\n");
		} else {
			printf("not understood: %s", line);
		}
	}
	return 0;
}
