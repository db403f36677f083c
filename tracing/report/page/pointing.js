/* SPDX-License-Identifier: MIT
 * pointing: the pointer and the keys over the map: moving, zooming, what is under the pointer. */

/* Of those that cover a place, the one that was born last. -1: none. */
function blockAt(x, y) {
	const b = edgesOf(state.device.map.blocks);
	let found = -1;
	for (let i = 0; i < b.count; i++)
		if (b.x0[i] <= x && x < b.x1[i] && b.y[i] <= y && y < b.y[i] + b.size[i])
			found = i;
	return found;
}

/* What is held there: [from, to) of the frame, or null. */
function frameAt(x, y) {
	const h = edgesOf(state.device.map.held);
	for (let i = h.count - 1; i >= 0; i--)
		if (h.x0[i] <= x && x < h.x1[i] && h.y[i] <= y && y < h.y[i] + h.size[i])
			return [h.y[i], h.y[i] + h.size[i]];
	return null;
}

function reservationAt(x, y) {
	const r = edgesOf(state.device.map.reservations);
	for (let i = 0; i < r.count; i++)
		if (r.x0[i] <= x && x < r.x1[i] && r.y[i] <= y && y < r.y[i] + r.size[i])
			return i;
	return -1;
}

/* The free range around a place within its frame: only right where all blocks are kept. */
function holeAt(x, y, frame) {
	const b = state.device.map.blocks;
	let [low, high] = frame;
	for (let i = 0; i < b.count; i++)
		if (b.x0[i] <= x && x < b.x1[i]) {
			if (b.y[i] + b.size[i] <= y)
				low = Math.max(low, b.y[i] + b.size[i]);
			else if (b.y[i] > y)
				high = Math.min(high, b.y[i]);
		}
	return [low, high];
}

function blockLines(i) {
	const d = state.device, b = d.map.blocks;
	const lines = [['asked', bytesText(b.asked[i]) + ' (' + countText(b.asked[i]) + ')']];
	if (b.size[i] !== b.asked[i])
		lines.push(['takes', bytesText(b.size[i])]);
	lines.push(['address', hexText(addressAt(d.map, b.y[i]))]);
	if (d.has_history)
		lines.push(['from', secondsText(d.clock.at(b.born[i])) + ', event ' + countText(b.born[i])]);
	const lived = [secondsText(b.life[i] / 1e6), countOf(b.gone[i] - b.born[i] - b.freed[i] + 1, 'event')];
	if (d.has_history)
		lines.push(['lived', b.freed[i] ? lived.join(', ') : 'to the end of the trace']);
	if (b.freed[i] > 1)
		lines.push(['then', 'waited ' + countText(b.freed[i] - 1) + ' events for a stream']);
	if (b.stream[i])
		lines.push(['stream', d.streams[b.stream[i] - 1]]);
	return lines;
}

function tipAt(event, x, y) {
	const d = state.device, i = blockAt(x, y);
	if (i >= 0) {
		const frames = state.stack(d.map.blocks.stack[i]);
		showTip(event, pairTable(blockLines(i)), frames.length ? stackList(frames, 6) : null);
		return;
	}
	const r = reservationAt(x, y), frame = frameAt(x, y);
	const where = el('div', {}, hexText(addressAt(d.map, y)) + ', ' + xText(x));
	if (r >= 0)
		showTip(event, el('div', {}, 'held back for ' + d.map.reservations.names[d.map.reservations.which[r]] + ': '
			+ bytesText(d.map.reservations.size[r])), where);
	else if (frame) {
		const [low, high] = holeAt(x, y, frame), whole = low === frame[0] && high === frame[1];
		const free = (whole ? 'free as a whole: ' : 'free between blocks: ') + bytesText(high - low);
		showTip(event, el('div', {}, d.map.blocks.tiles ? 'small blocks, or free' : free),
			el('div', {}, 'in a frame of ' + bytesText(frame[1] - frame[0])), where);
	} else
		showTip(event, el('div', {}, d.map.held.tiles ? 'not mapped, or of small frames' : 'not mapped'), where);
}

function showBlock(i) {
	const box = byId('block');
	map.picked = i;
	box.hidden = i < 0;
	if (i >= 0) {
		const b = state.device.map.blocks, frames = state.stack(b.stack[i]);
		const title = b.stack[i] ? stackTitle(b.stack[i]) : bytesText(b.asked[i]);
		const like = el('button', {type: 'button'}, `show all blocks of this ${b.stack[i] ? 'stack' : 'size and stream'}`);
		like.addEventListener('click', () => setGroup(groupOf(title, b.stack[i], b.asked[i], b.stream[i])));
		fill(box, el('h3', {}, 'Block at ' + hexText(addressAt(state.device.map, b.y[i]))), pairTable(blockLines(i)),
			frames.length ? stackList(frames) : el('p', {class: 'hint'}, 'Its stack is not known.'), like);
	}
	redrawMap();
}

/* Blocks of one stack, or where none is known, of a size and stream (0: any). */
function groupOf(title, stack, size, stream) {
	return {title, stack, size, stream, matches: (s, asked, from) => s === stack && (stack > 0 ||
		((!size || asked === size) && (!stream || from === stream)))};
}

function setAddresses(low, high) {
	const top = state.device.map.height, height = Math.min(top, Math.max(high - low, 512));
	const begin = Math.min(Math.max(0, low + (high - low - height) / 2), top - height);
	map.y = [begin, begin + height];
	redrawMap();
}

function zoomAddresses(about, factor) {
	setAddresses(about - (about - map.y[0]) / factor, about + (map.y[1] - about) / factor);
}

function middle(range) {
	return (range[0] + range[1]) / 2;
}

function moveMap(dx, dy) {
	const s = mapScales(), x = s.x.invert(s.x(state.view[0]) - dx) - state.view[0], y = s.y.invert(s.y(map.y[0]) - dy) - map.y[0];
	if (dx)
		setView(state.view[0] + x, state.view[1] + x);
	if (dy)
		setAddresses(map.y[0] + y, map.y[1] + y);
}

function zoomMap(about, factor, event) {
	const s = mapScales();
	if (!event || !event.altKey)
		zoomView(about ? s.x.invert(about[0]) : middle(state.view), factor);
	if (!event || !event.shiftKey)
		zoomAddresses(about ? s.y.invert(about[1]) : middle(map.y), factor);
}

function wholeMap() {
	setAddresses(0, state.device.map.height);
}

const mapKeys = {
	ArrowLeft: () => moveMap(60, 0), ArrowRight: () => moveMap(-60, 0),
	ArrowUp: () => moveMap(0, 60), ArrowDown: () => moveMap(0, -60),
	'+': () => zoomMap(null, 1.5), '=': () => zoomMap(null, 1.5), '-': () => zoomMap(null, 1 / 1.5),
	0: () => {
		setView(...wholeView());
		wholeMap();
	},
	Escape: () => {
		setGroup(null);
		showBlock(-1);
	},
};

/* Of a wheel or a pointer, on the canvas; of a touch, null. */
function placeOf(event) {
	return event && event.clientX !== undefined ? pointIn(map.canvas, event) : null;
}

/* d3's zoom tells a pointer's, a wheel's and a touch's movements; what they do to each axis is decided here. */
function makePointing() {
	let last = d3.zoomIdentity, moved = false;
	const zoom = d3.zoom().filter(given => {
		const e = eventOf(given && given.type ? given : null);
		return e.type === 'wheel' ? e.ctrlKey || e.metaKey || document.activeElement === map.canvas : !e.button;
	}).on('start', () => {
		moved = false;
		hideTip();
	}).on('zoom', given => {
		const e = eventOf(given), t = e.transform, factor = t.k / last.k;
		if (Math.abs(factor - 1) > 1e-9)
			zoomMap(placeOf(e.sourceEvent), factor, e.sourceEvent);
		else if (t.x !== last.x || t.y !== last.y) {
			moved = true;
			moveMap(t.x - last.x, t.y - last.y);
		}
		last = t;
	}).on('end', () => {
		/* So that its numbers never get too large or small. */
		last = map.canvas.__zoom = d3.zoomIdentity;
	});
	d3.select(map.canvas).call(zoom).on('dblclick.zoom', null);
	map.canvas.addEventListener('dblclick', () => mapKeys[0]());
	map.canvas.addEventListener('pointermove', event => {
		if (event.buttons)
			return;
		const s = mapScales(), [px, py] = pointIn(map.canvas, event), x = s.x.invert(px), y = s.y.invert(py);
		const inside = px >= mapMargin.left && px <= s.width - mapMargin.right
			&& py >= mapMargin.top && py <= s.height - mapMargin.bottom;
		state.cursor = inside ? x : null;
		changed('cursor');
		if (inside)
			tipAt(event, x, y);
		else
			hideTip();
	});
	map.canvas.addEventListener('pointerleave', () => {
		hideTip();
		state.cursor = null;
		changed('cursor');
	});
	map.canvas.addEventListener('click', event => {
		map.canvas.focus({preventScroll: true});
		if (moved)
			return;
		const s = mapScales(), [px, py] = pointIn(map.canvas, event);
		showBlock(blockAt(s.x.invert(px), s.y.invert(py)));
	});
	map.canvas.addEventListener('keydown', event => {
		const act = !event.ctrlKey && !event.metaKey && mapKeys[event.key];
		if (act) {
			event.preventDefault();
			act();
		}
	});
}
