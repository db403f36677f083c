/* SPDX-License-Identifier: MIT
 *
 * Children by fork: one made before CUDA is used, which may use it; one made after, which may not and must only fail; one
 * that becomes another program. The parent goes on.
 */
#include "gpu.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void wait_for(const char *what, pid_t child)
{
	int status;
	waitpid(child, &status, 0);
	printf("%s: %s %d\n", what, WIFEXITED(status) ? "status" : "signal",
	       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	fflush(stdout);
}

static void use(int argc, char **argv)
{
	CUstream stream = NULL;
	gpu_open(argc, argv);
	gpu_work(5, 100, 10, 1 << 20, &stream, 1);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[2], "again")) {
		use(argc, argv);
		printf("in another program\n");
		return 0;
	}
	pid_t child = fork();
	if (!child) {
		use(argc, argv);
		_exit(11);
	}
	wait_for("before", child);

	use(argc, argv);
	CUdeviceptr ptr, other = 0;
	GPU(cu.cuMemAllocAsync(&ptr, 1 << 20, NULL));
	gpu_fill(ptr, 1 << 20, 3, NULL);
	child = fork();
	if (!child) {
		bool refused = cu.cuMemAllocAsync(&other, 1 << 20, NULL) != CUDA_SUCCESS;
		refused &= cu.cuMemFreeAsync(ptr, NULL) != CUDA_SUCCESS;
		refused &= cu.cuMemAlloc_v2(&other, 1 << 20) != CUDA_SUCCESS;
		refused &= cu.cuMemFree_v2(ptr) != CUDA_SUCCESS;
		_exit(refused ? 12 : 13);
	}
	wait_for("after", child);
	child = fork();
	if (!child) {
		execl("/proc/self/exe", argv[0], argc > 1 ? argv[1] : "linked", "again", (char *)NULL);
		_exit(14);
	}
	wait_for("exec", child);
	gpu_check(ptr, 1 << 20, 3, NULL);
	GPU(cu.cuMemFreeAsync(ptr, NULL));
	use(argc, argv);
	printf("the parent goes on\n");
	return 0;
}
