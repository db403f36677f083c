/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE /* open_memstream */
#include "run_plan.h"

#include "../heap/settings.h"
#include "../plan/plan_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool add(FILE *out, struct clv_run_plan *p, const struct clv_plan_file *f, size_t i, struct clv_error *err)
{
	const struct clv_plan_file_reservation *from = &f->reservations[i];
	struct clv_error why = {""};
	if (from->bytes <= CLV_RESERVE_ABOVE) {
		p->small++;
		return true;
	}
	if (!clv_reserve_sane(from->bytes, from->count, &why))
		return clv_error_set(err, "%s: reservations[%zu] has bytes %llu and count %llu: %s", f->path, i,
				     (unsigned long long)from->bytes, (unsigned long long)from->count, why.text);
	if (p->count == CLV_RESERVES_SET)
		return clv_error_set(err,
				     "%s: reservations has more entries above 32 KiB than the %u that were expected",
				     f->path, CLV_RESERVES_SET);
	struct clv_reserve_text r = {.bytes = from->bytes,
				     .count = from->count,
				     .after_n = from->after_n,
				     .uses = from->uses,
				     .hard = from->hard,
				     .device = CLV_RESERVE_EACH_DEVICE};
	snprintf(r.name, sizeof(r.name), "%s", from->name);
	char text[256];
	clv_reserve_print(&r, text, sizeof(text));
	fprintf(out, "%sreserve:%s", p->count ? "," : "", text);
	p->count++;
	p->bytes += from->bytes * from->count;
	return true;
}

bool clv_run_plan_read(struct clv_run_plan *p, const char *path, struct clv_error *err)
{
	struct clv_plan_file f;
	size_t len;
	memset(p, 0, sizeof(*p));
	if (!clv_plan_file_read(&f, path, err))
		return false;
	FILE *out = open_memstream(&p->settings, &len);
	bool ok = out != NULL;
	for (size_t i = 0; ok && i < f.reservation_count; i++)
		ok = add(out, p, &f, i, err);
	if (out && fclose(out))
		ok = false;
	if (!ok) {
		clv_error_set(err, "%s: out of host memory", path); /* unless it was something else */
		free(p->settings);
		p->settings = NULL;
	}
	clv_plan_file_free(&f);
	return ok;
}
