/* SPDX-License-Identifier: MIT */
#include "event.h"

const char *clv_event_name(enum clv_event e)
{
	static const char *const names[] = {
#define X(name, text, what) text,
		CLV_EVENTS(X)
#undef X
	};
	return e < CLV_EVENT_COUNT ? names[e] : "other";
}
