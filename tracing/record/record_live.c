/* SPDX-License-Identifier: MIT */
#include "record_live.h"

#include <string.h>

/* Open addressing with linear probing. */
static size_t home(const struct clv_live_map *m, uint64_t key)
{
	return clv_mix64(key) & (m->count - 1);
}

static struct clv_live_slot *probe(const struct clv_live_map *m, uint64_t key)
{
	for (size_t i = home(m, key);; i = (i + 1) & (m->count - 1))
		if (!m->slots[i].used || m->slots[i].key == key)
			return &m->slots[i];
}

static struct clv_live_slot *find(const struct clv_live_map *m, uint64_t key)
{
	struct clv_live_slot *slot = m->count ? probe(m, key) : NULL;
	return slot && slot->used ? slot : NULL;
}

static bool grow(struct clv_encoder *e, struct clv_live_map *m)
{
	struct clv_live_map grown = {.count = m->count ? m->count * 2 : 256, .used = m->used};
	grown.slots = e->memory->resize(NULL, grown.count * sizeof(*grown.slots));
	if (!grown.slots)
		return false;
	memset(grown.slots, 0, grown.count * sizeof(*grown.slots));
	for (size_t i = 0; i < m->count; i++)
		if (m->slots[i].used)
			*probe(&grown, m->slots[i].key) = m->slots[i];
	e->memory->release(m->slots);
	*m = grown;
	return true;
}

/* What was there under the key is replaced. */
static bool put(struct clv_encoder *e, struct clv_live_map *m, uint64_t key, const struct clv_raw *raw, uint32_t thread)
{
	if ((m->used + 1) * 3 > m->count * 2 && !grow(e, m))
		return false;
	struct clv_live_slot *slot = probe(m, key);
	m->used += !slot->used;
	*slot = (struct clv_live_slot){.key = key, .raw = *raw, .thread = thread, .used = true};
	return true;
}

/* Those behind it move up, so that each is found from its home on without a gap. */
static void take_out(struct clv_live_map *m, uint64_t key)
{
	struct clv_live_slot *slot = find(m, key);
	if (!slot)
		return;
	size_t mask = m->count - 1, gap = (size_t)(slot - m->slots);
	for (size_t i = (gap + 1) & mask; m->slots[i].used; i = (i + 1) & mask)
		if (((i - home(m, m->slots[i].key)) & mask) >= ((i - gap) & mask)) {
			m->slots[gap] = m->slots[i];
			gap = i;
		}
	m->slots[gap].used = false;
	m->used--;
}

void clv_live_free(struct clv_encoder *e, struct clv_live *l)
{
	e->memory->release(l->blocks.slots);
	e->memory->release(l->frames.slots);
	*l = (struct clv_live){0};
}

void clv_live_take(struct clv_encoder *e, struct clv_live *l, const struct clv_raw *raw, uint32_t thread)
{
	/* neither addresses nor numbers of frames come near the upper bits */
	uint64_t of_device = (uint64_t)(uint32_t)raw->device << 48;
	struct clv_live_slot *frame;
	bool ok = true;
	if (l->incomplete)
		return;
	switch (raw->event) {
	case CLV_EVENT_ALLOC:
		ok = put(e, &l->blocks, raw->addr ^ of_device, raw, thread);
		break;
	case CLV_EVENT_FREE:
		take_out(&l->blocks, raw->addr ^ of_device);
		break;
	case CLV_EVENT_FRAME_CREATE:
		ok = put(e, &l->frames, raw->a ^ of_device, raw, thread);
		break;
	case CLV_EVENT_FRAME_RELEASE:
		take_out(&l->frames, raw->a ^ of_device);
		break;
	case CLV_EVENT_FRAME_MAP:
		frame = find(&l->frames, raw->a ^ of_device);
		if (frame)
			frame->raw.addr = raw->addr;
		break;
	case CLV_EVENT_FRAME_UNMAP: /* it can be mapped elsewhere by now */
		frame = find(&l->frames, raw->a ^ of_device);
		if (frame && frame->raw.addr == raw->addr)
			frame->raw.addr = 0;
		break;
	default:
		break;
	}
	if (ok)
		return;
	clv_live_free(e, l);
	l->incomplete = true;
}
