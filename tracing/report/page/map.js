/* SPDX-License-Identifier: MIT
 * map: who had which addresses when, on a canvas. Free memory that is held is what shows between the blocks. */

const mapMargin = {left: margin.left, right: margin.right, top: 4, bottom: 22};
const map = {canvas: null, y: [0, 1], picked: -1, order: null, waiting: false, drawn: 0};

function mapSize() {
	const box = map.canvas.getBoundingClientRect();
	return {width: box.width, height: box.height};
}

/* Scales of the moment: from the axis' units, and from addresses of the picture, to pixels; low addresses are below. */
function mapScales() {
	const {width, height} = mapSize();
	return {width, height,
		x: d3.scaleLinear().domain(state.view).range([mapMargin.left, Math.max(mapMargin.left + 10, width - mapMargin.right)]),
		y: d3.scaleLinear().domain(map.y).range([height - mapMargin.bottom, mapMargin.top])};
}

/* Ends of a layer's rectangles in units of the axis: made once for each axis. */
function edgesOf(layer) {
	if (layer.axis !== state.axis) {
		layer.axis = state.axis;
		layer.x0 = Float64Array.from(layer.born, toX);
		layer.x1 = Float64Array.from(layer.gone, toX);
	}
	return layer;
}

/* Calls draw(i, x, y, width, height) for all that can be seen, in pixels that are not rounded. */
function eachVisible(layer, s, indices, draw) {
	const [a, b] = state.view, [low, high] = map.y;
	const x0 = s.x(a), y0 = s.y(low), kx = (s.x(b) - x0) / (b - a), ky = (s.y(high) - y0) / (high - low);
	edgesOf(layer);
	const n = indices ? indices.length : layer.count;
	for (let k = 0; k < n; k++) {
		const i = indices ? indices[k] : k;
		if (layer.x1[i] < a || layer.x0[i] > b || layer.y[i] > high || layer.y[i] + layer.size[i] < low)
			continue;
		const left = x0 + (Math.max(layer.x0[i], a) - a) * kx, right = x0 + (Math.min(layer.x1[i], b) - a) * kx;
		const bottom = y0 + (Math.max(layer.y[i], low) - low) * ky;
		const top = y0 + (Math.min(layer.y[i] + layer.size[i], high) - low) * ky;
		draw(i, left, top, right - left, bottom - top);
	}
}

/* Blocks by class of colour, so that the canvas changes its colour a few times only. */
function colourOrder() {
	const d = state.device;
	if (!map.order || map.order.device !== d || map.order.colour !== state.colour) {
		const made = colourings[state.colour].make(d), by = made.classes.map(() => []);
		for (let i = 0; i < d.map.blocks.count; i++)
			by[made.of[i]].push(i);
		map.order = {device: d, colour: state.colour, classes: made.classes, by};
	}
	return map.order;
}

function drawHeld(context, s, d) {
	const held = d.map.held, edge = new Path2D();
	context.fillStyle = colourOf('map-held');
	eachVisible(held, s, null, (i, x, y, w, h) => {
		context.fillRect(x, y, Math.max(w, 0.5), h);
		if (h > 6 && w > 6)
			edge.rect(x + 0.5, y + 0.5, w - 1, h - 1);
	});
	drawTiles(context, held, d.map, colourOf('map-held'), i => s.x(toX(i)), s.y);
	context.strokeStyle = colourOf('map-edge');
	context.lineWidth = 1;
	context.stroke(edge);
}

/* Small ones are drawn as pale as they are small, so that what looks full is. A line below a large one keeps it apart from its
 * neighbour. */
function drawBlocks(context, s, d) {
	const order = colourOrder(), blocks = d.map.blocks, wait = [];
	let drawn = 0;
	drawTiles(context, blocks, d.map, colourOf('map-block'), i => s.x(toX(i)), s.y);
	context.globalAlpha = state.group ? 0.3 : 1;
	for (let c = 0; c < order.classes.length; c++) {
		context.fillStyle = order.classes[c].colour;
		eachVisible(blocks, s, order.by[c], (i, x, y, w, h) => {
			drawn++;
			if (Math.min(w, 1) * Math.min(h, 1) < 0.002) /* paler than the canvas can tell */
				return;
			context.fillRect(x, y, w, h > 5 ? h - 1 : h);
			if (blocks.freed[i] > 1)
				wait.push(i);
		});
	}
	context.fillStyle = colourOf('stream');
	eachVisible(blocks, s, wait, (i, x, y, w, h) => {
		const from = Math.max(x, s.x(toX(blocks.gone[i] - blocks.freed[i] + 1)));
		if (x + w > from)
			context.fillRect(from, y, x + w - from, h);
	});
	context.globalAlpha = 1;
	map.drawn = drawn;
}

function drawHeldBack(context, s, d) {
	context.fillStyle = colourOf('reservation');
	eachVisible(d.map.reservations, s, null, (i, x, y, w, h) => context.fillRect(x, y, Math.max(w, 1), h));
	drawTiles(context, d.map.reservations, d.map, colourOf('reservation'), i => s.x(toX(i)), s.y);
}

/* What was chosen is seen however small it is. */
function drawPicked(context, s, d) {
	const blocks = d.map.blocks;
	if (state.group) {
		const chosen = [];
		for (let i = 0; i < blocks.count; i++)
			if (state.group.matches(blocks.stack[i], blocks.asked[i], blocks.stream[i]))
				chosen.push(i);
		context.fillStyle = colourOf('pick');
		eachVisible(blocks, s, chosen,
			(i, x, y, w, h) => context.fillRect(x, y, Math.max(w, 1.5), Math.max(h > 5 ? h - 1 : h, 1.5)));
	}
	if (map.picked >= 0) {
		context.strokeStyle = colourOf('text');
		context.lineWidth = 2;
		eachVisible(blocks, s, [map.picked],
			(i, x, y, w, h) => context.strokeRect(x - 1, y - 1, Math.max(w, 2) + 2, Math.max(h, 2) + 2));
	}
}

/* The place of a round address at or below, in the same stretch. */
function roundPlace(m, y, round) {
	const e = m.extents, k = Math.max(0, d3.bisectRight(e.y, y) - 1);
	return e.count ? Math.max(e.y[k], Math.min(y, e.y[k] + e.size[k]) - addressAt(m, y) % round) : y;
}

/* Addresses at the left; a small line where one stretch ends and another, elsewhere, begins. */
function drawAddressAxis(context, s, d) {
	const e = d.map.extents, [low, high] = map.y;
	context.font = '11.5px ui-monospace, "DejaVu Sans Mono", monospace';
	context.textAlign = 'right';
	context.textBaseline = 'middle';
	const first = Math.max(0, d3.bisectRight(e.y, low) - 1);
	context.strokeStyle = context.fillStyle = colourOf('map-edge');
	let last = Infinity;
	for (let k = first; k < e.count && e.y[k] <= high; k++) {
		const y = s.y(e.y[k]);
		if (k > 0 && last - y >= 3) {
			context.fillRect(mapMargin.left - 5, y, 5, 1);
			last = y;
		}
	}
	context.fillStyle = colourOf('dim');
	const count = Math.max(2, Math.floor((s.height - mapMargin.bottom) / 60));
	const round = Math.pow(2, Math.max(0, Math.floor(Math.log2((high - low) / count)) - 2));
	for (let i = 0; i <= count; i++) {
		const at = roundPlace(d.map, low + (high - low) * i / count, round);
		const y = Math.min(s.height - mapMargin.bottom - 6, Math.max(mapMargin.top + 7, s.y(at)));
		context.fillText(hexText(addressAt(d.map, at)), mapMargin.left - 8, y);
	}
}

function drawTimeAxis(context, s) {
	if (!state.device.has_history)
		return;
	context.font = '11.5px system-ui, "DejaVu Sans", sans-serif';
	context.textAlign = 'center';
	context.textBaseline = 'alphabetic';
	context.fillStyle = colourOf('dim');
	for (const t of s.x.ticks(Math.max(2, Math.floor(s.width / 130)))) {
		context.fillRect(Math.round(s.x(t)), s.height - mapMargin.bottom, 1, 4);
		context.fillText(axisText(t), s.x(t), s.height - 6);
	}
}

function drawMapLines(context, s, d) {
	const line = (x, colour, width) => {
		if (x < state.view[0] || x > state.view[1])
			return;
		context.fillStyle = colour;
		context.fillRect(s.x(x) - width / 2, mapMargin.top, width, s.height - mapMargin.top - mapMargin.bottom);
	};
	for (const m of d.moments)
		if (m.kind === 'failure')
			line(toX(momentIndex(m)), colourOf('bad'), 1);
	if (d.moments[state.moment])
		line(toX(momentIndex(d.moments[state.moment])), colourOf('pick'), 2);
}

/* Beside the canvas, which need not be drawn anew for it. */
function drawMapCursor() {
	const line = byId('map-cursor'), s = mapScales();
	line.hidden = state.cursor === null || state.cursor < state.view[0] || state.cursor > state.view[1];
	line.style.left = s.x(state.cursor) + 'px';
	line.style.top = mapMargin.top + 'px';
	line.style.height = s.height - mapMargin.top - mapMargin.bottom + 'px';
}

function drawMap() {
	const s = mapScales(), d = state.device, ratio = window.devicePixelRatio || 1;
	const width = Math.max(1, Math.round(s.width * ratio)), height = Math.max(1, Math.round(s.height * ratio));
	if (map.canvas.width !== width || map.canvas.height !== height) {
		map.canvas.width = width;
		map.canvas.height = height;
	}
	const context = map.canvas.getContext('2d');
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.clearRect(0, 0, s.width, s.height);
	context.save();
	context.beginPath();
	context.rect(mapMargin.left, mapMargin.top, s.width - mapMargin.left - mapMargin.right,
		s.height - mapMargin.top - mapMargin.bottom);
	context.clip();
	context.fillStyle = colourOf('map-back');
	context.fillRect(0, 0, s.width, s.height);
	if (state.view[1] > state.view[0]) {
		drawHeld(context, s, d);
		drawHeldBack(context, s, d);
		drawBlocks(context, s, d);
		drawPicked(context, s, d);
		drawMapLines(context, s, d);
	}
	context.restore();
	drawAddressAxis(context, s, d);
	drawTimeAxis(context, s);
	drawMapCursor();
	document.body.dataset.blocks = String(map.drawn);
}

/* At most once a frame of the screen. */
function redrawMap() {
	if (map.waiting)
		return;
	map.waiting = true;
	requestAnimationFrame(() => {
		map.waiting = false;
		drawMap();
	});
}

function drawMapLegend() {
	const d = state.device, order = colourOrder();
	const used = order.classes.filter((c, i) => order.by[i].length > 0)
		.map(c => el('li', {}, swatch(c.colour), clipped(c.title, 60)));
	const kinds = [el('li', {title: 'held, with no live block in it'}, edged(colourOf('map-held')), 'free'),
		el('li', {title: 'no frame is mapped here'}, edged(colourOf('map-back')), 'not mapped')];
	if (peakOf(d, 'stream') > 0)
		kinds.push(el('li', {}, swatch('stream'), 'waiting for a stream'));
	if (d.map.reservations.total > 0)
		kinds.push(el('li', {}, swatch('reservation'), 'reserved'));
	if (d.map.blocks.tiles)
		kinds.push(el('li', {}, swatch('map-block'), 'small blocks together'));
	if (state.group) {
		const off = el('button', {type: 'button'}, 'show all alike');
		off.addEventListener('click', () => setGroup(null));
		kinds.unshift(el('li', {}, swatch('pick'), clipped(state.group.title, 60), ' ', off));
	}
	fill(byId('map-legend'), ...used, ...kinds);
	const b = d.map.blocks;
	const some = `Of ${countText(b.total)} blocks the ${countText(b.count)} that pin memory or are largest are drawn one by one, `
		+ 'the others as shades. ';
	fill(byId('map-hint'), (b.tiles ? some : '') + 'Drag to move. Click into the map, then turn the wheel to zoom (shift: time only, '
		+ 'alt: addresses only); or ctrl and the wheel at any time. Addresses where nothing was are left out.');
}

function edged(colour) {
	const svg = swatch(colour);
	d3.select(svg).select('rect').attr('stroke', colourOf('dim')).attr('stroke-width', 1.5);
	return svg;
}
