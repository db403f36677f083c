/* SPDX-License-Identifier: MIT
 *
 * Exceptions through frames of C, out of a library that was opened at run time, in threads, and a cancelled thread.
 */
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

struct Counted {
	static int alive;
	Counted()
	{
		alive++;
	}
	~Counted()
	{
		alive--;
	}
};
int Counted::alive;

static int compare(const void *, const void *)
{
	Counted c;
	throw std::runtime_error("out of a comparison");
}

extern "C" void quiet_callback(void)
{
	Counted c;
	throw std::string("out of a callback found by dlsym");
}

static void *forever(void *)
{
	Counted c;
	for (;;)
		pause();
}

int main()
{
	int numbers[] = {3, 1, 2};
	try {
		qsort(numbers, 3, sizeof(int), compare);
	} catch (const std::exception &e) {
		std::printf("%s\n", e.what());
	}
	try {
		auto fn = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "quiet_callback"));
		fn ? fn() : quiet_callback();
	} catch (const std::string &s) {
		std::printf("%s\n", s.c_str());
	}
	std::thread([] {
		try {
			throw 17;
		} catch (int n) {
			std::printf("thread %d\n", n);
		}
	}).join();
	pthread_t thread;
	pthread_create(&thread, nullptr, forever, nullptr);
	pthread_cancel(thread);
	void *result;
	pthread_join(thread, &result);
	std::printf("cancelled %d, alive %d\n", result == PTHREAD_CANCELED, Counted::alive);
	return 0;
}
