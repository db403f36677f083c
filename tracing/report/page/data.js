/* SPDX-License-Identifier: MIT
 * data: the numbers of the page, as html_pack.c wrote them, into typed arrays. */

function unpack(text) {
	const raw = atob(text), bytes = new Uint8Array(raw.length);
	for (let i = 0; i < raw.length; i++)
		bytes[i] = raw.charCodeAt(i);
	return bytes;
}

/* Reads a pack from its beginning. */
function reader(text) {
	const bytes = unpack(text);
	let at = 0, last = 0;
	const number = () => {
		let value = 0, scale = 1, byte;
		do {
			if (at >= bytes.length)
				throw new Error('the data of this page are cut short');
			byte = bytes[at++];
			value += (byte & 127) * scale;
			scale *= 128;
		} while (byte > 127);
		return value;
	};
	return {
		number,
		step: () => {
			const n = number();
			last += n % 2 ? -(n + 1) / 2 : n / 2;
			return last;
		},
		byte: () => bytes[at++],
		done: () => at >= bytes.length,
	};
}

function numbers(text, count) {
	const r = reader(text), to = new Float64Array(count);
	for (let i = 0; i < count; i++)
		to[i] = r.number();
	return to;
}

function steps(text, count) {
	const r = reader(text), to = new Float64Array(count);
	for (let i = 0; i < count; i++)
		to[i] = r.step();
	return to;
}

/* Bytes, of which runs of zeros are told by their length. */
function sparse(text, count) {
	const r = reader(text), to = new Uint8Array(count);
	for (let i = 0; i < count; i++) {
		to[i] = r.byte();
		if (!to[i])
			i += r.number();
	}
	return to;
}

/* All stacks of the page: stack(n) is [{file, function, line}..], the innermost first; of 0, none. */
function stackTable(packed) {
	const frames = [], offsets = [0], calls = [];
	for (let r = reader(packed.frames); !r.done();)
		frames.push({file: packed.text[r.number()], name: packed.text[r.number()], line: r.number(), address: r.number()});
	for (let r = reader(packed.stacks); !r.done();) {
		for (let n = r.number(); n > 0; n--)
			calls.push(r.number());
		offsets.push(calls.length);
	}
	return n => n > 0 ? calls.slice(offsets[n - 1], offsets[n]).map(f => frames[f]) : [];
}

/* When events came: at(i) in seconds for any place between two events, and back. */
function clock(packed, width) {
	const count = Math.floor((width - 1) / packed.step) + 2;
	const us = [], r = reader(packed.us);
	while (!r.done() && us.length < count)
		us.push(r.step() / 1e6);
	const end = us.length ? us[us.length - 1] : 0;
	return {
		begin: us.length ? us[0] : 0,
		end,
		at: i => {
			const x = Math.max(0, i) / packed.step, k = Math.floor(x);
			return k + 1 < us.length ? us[k] + (us[k + 1] - us[k]) * (x - k) : end;
		},
		index: s => {
			const k = d3.bisectRight(us, s) - 1;
			if (k < 0)
				return 0;
			if (k + 1 >= us.length)
				return width;
			return Math.min(width, (k + (s - us[k]) / (us[k + 1] - us[k])) * packed.step);
		},
	};
}

const timelineColumns = ['held', 'live', 'internal', 'reservation', 'stream', 'hard', 'soft', 'max_held', 'max_live', 'max_hard'];

function timelineOf(packed) {
	const t = {count: packed.count, last: steps(packed.after, packed.count).map(n => Math.max(0, n - 1)),
		seconds: steps(packed.us, packed.count).map(us => us / 1e6)};
	for (const name of timelineColumns)
		t[name] = steps(packed[name], packed.count);
	return t;
}

function layerOf(packed, map) {
	const n = packed.count;
	const layer = {count: n, total: packed.total, born: steps(packed.born, n), gone: numbers(packed.events, n),
		y: steps(packed.y, n), size: numbers(packed.size, n), tiles: packed.tiles && sparse(packed.tiles, map.columns * map.rows)};
	for (let i = 0; i < n; i++)
		layer.gone[i] += layer.born[i];
	return layer;
}

function mapOf(packed) {
	const n = packed.extents.count;
	const map = {width: packed.width, height: packed.height, columns: packed.columns, rows: packed.rows,
		extents: {count: n, addr: steps(packed.extents.addr, n), size: numbers(packed.extents.size, n),
			y: steps(packed.extents.y, n)},
		held: layerOf(packed.held, packed), reservations: layerOf(packed.reservations, packed),
		blocks: layerOf(packed.blocks, packed)};
	const more = packed.blocks.more, b = map.blocks;
	b.stack = numbers(more.stack, b.count);
	b.stream = numbers(more.stream, b.count);
	b.asked = numbers(more.asked, b.count);
	b.life = numbers(more.life, b.count);
	b.freed = numbers(more.freed, b.count); /* 0: never; else 1 and the events that it waited */
	map.reservations.names = packed.reservations.more.names;
	map.reservations.which = numbers(packed.reservations.more.which, map.reservations.count);
	return map;
}

/* Where an address of the picture is on the device. */
function addressAt(map, y) {
	const e = map.extents, k = Math.max(0, d3.bisectRight(e.y, y) - 1);
	return e.count ? e.addr[k] + Math.min(Math.max(0, y - e.y[k]), e.size[k]) : 0;
}
