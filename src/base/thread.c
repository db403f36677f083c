/* SPDX-License-Identifier: MIT */
#include "thread.h"

#include <signal.h>

int clv_thread_start(pthread_t *out, size_t stack, void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	pthread_t nobodys;
	sigset_t all, before;
	int status = pthread_attr_init(&attr);
	if (status)
		return status;
	if (!out)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, stack);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	status = pthread_create(out ? out : &nobodys, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return status;
}
