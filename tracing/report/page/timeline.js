/* SPDX-License-Identifier: MIT
 * timeline: what was held, by cause, at every moment; phases, marks and moments above it; below, the whole of it as a strip. */

/* From the bottom up: what each cause is. */
const causes = [
	['live', 'live', 'in blocks that the program has not freed'],
	['internal', 'rounding', 'given to live blocks beyond what they asked for'],
	['reservation', 'reserved', 'held back by reservations and not used yet'],
	['stream', 'waiting for a stream', 'freed, but work of a stream may still use it'],
	['hard', 'stranded', 'free pieces between live blocks: no flush gives them back, and they serve only what fits'],
	['soft', 'free, whole', 'free and not fragmented: only not given back'],
];
const hiddenCauses = new Set();
/* The map below has the same left and right edge. */
const margin = {left: 116, right: 30, top: 14, bottom: 24};
const band = {rows: 2, height: 14};
let chart = null, strip = null;

/* Where the buckets end, in units of the axis. */
function bucketEnds(t) {
	return state.axis === 'time' ? t.seconds : t.last;
}

/* The bucket that the state at a place belongs to. */
function bucketAt(t, x) {
	return Math.max(0, d3.bisectRight(bucketEnds(t), x) - 1);
}

/* The buckets from `from` to `to`, no more than two a pixel: of those in one, the last, with the most of any. */
function thinned(t, from, to, pixels) {
	const ends = bucketEnds(t), first = bucketAt(t, from), last = Math.min(t.count - 1, bucketAt(t, to) + 1);
	const stride = Math.max(1, Math.floor((last - first + 1) / (2 * pixels)));
	const rows = [];
	for (let i = first; i <= last; i += stride) {
		const end = Math.min(last, i + stride - 1), row = {at: end, x: ends[end], max_held: 0, max_live: 0};
		for (let k = i; k <= end; k++) {
			row.max_held = Math.max(row.max_held, t.max_held[k]);
			row.max_live = Math.max(row.max_live, t.max_live[k]);
		}
		rows.push(row);
	}
	/* Between two states that are more than an event apart, the most is that of the second. */
	for (let i = 0; i + 1 < rows.length; i++) {
		const apart = t.last[rows[i + 1].at] - t.last[rows[i].at] > 1;
		rows[i].most_held = Math.max(t.held[rows[i].at], apart ? rows[i + 1].max_held : 0);
		rows[i].most_live = Math.max(t.live[rows[i].at], apart ? rows[i + 1].max_live : 0);
	}
	if (rows.length) {
		const end = rows[rows.length - 1];
		end.most_held = t.held[end.at];
		end.most_live = t.live[end.at];
		if (first === 0)
			rows[0].x = Math.min(rows[0].x, from);
		rows.push(Object.assign({}, end, {x: Math.max(end.x, to)}));
	}
	return rows;
}

/* Each row's lower and upper edge of every cause that is shown. */
function stacked(t, rows) {
	const below = rows.map(() => 0), layers = [];
	for (const [name] of causes) {
		if (hiddenCauses.has(name))
			continue;
		layers.push({name, edges: rows.map((row, i) => {
			const low = below[i];
			below[i] += t[name][row.at];
			return {x: row.x, low, high: below[i]};
		})});
	}
	return layers;
}

function areaOf(x, y) {
	return d3.area().x(p => x(p.x)).y0(p => y(p.low)).y1(p => y(p.high)).curve(d3.curveStepAfter);
}

function lineOf(x, y, value) {
	return d3.line().x(p => x(p.x)).y(p => y(p[value])).curve(d3.curveStepAfter);
}

function makeChart() {
	const svg = d3.select('#timeline').append('svg').attr('height', '100%').attr('role', 'img')
		.attr('aria-label', 'Memory over time by cause; the table below has the same moments');
	svg.append('defs').append('clipPath').attr('id', 'plot').append('rect');
	chart = {svg, bands: svg.append('g'), plot: svg.append('g').attr('clip-path', 'url(#plot)'),
		x: svg.append('g').attr('class', 'axis'), y: svg.append('g').attr('class', 'axis'), lines: svg.append('g'),
		brushing: svg.append('g'), flags: svg.append('g'), cursor: svg.append('line')};
	chart.cursor.attr('pointer-events', 'none');
	chart.brush = d3.brushX().on('end', given => {
		const e = eventOf(given);
		if (!e.selection)
			return;
		const [a, b] = e.selection.map(chart.scale.invert);
		chart.brush.move(chart.brushing, null);
		setView(a, b);
	});
	const node = chart.brushing.node();
	node.addEventListener('pointermove', hover);
	node.addEventListener('pointerleave', () => {
		hideTip();
		state.cursor = null;
		changed('cursor');
	});
	node.addEventListener('dblclick', () => setView(...wholeView()));
}

function hover(event) {
	const x = chart.scale.invert(pointIn(byId('timeline'), event)[0]);
	if (event.buttons || !state.device.timeline.count)
		return;
	state.cursor = x;
	changed('cursor');
	const t = state.device.timeline, at = bucketAt(t, x);
	const rows = causes.slice().reverse().map(([name, title]) => [title, t[name][at], name]);
	const table = el('table', {}, ...[['held', t.held[at], null], ...rows].map(([title, n, name]) => el('tr', {},
		el('td', {}, name && swatch(name), ' ' + title), el('td', {class: 'n'}, bytesText(n)),
		el('td', {class: 'n'}, name ? percentText(n, t.held[at]) : ''))));
	showTip(event, el('strong', {}, secondsText(state.device.clock.at(toIndex(x))) + ', event ' + countText(toIndex(x))), table);
}

function swatch(name) {
	const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
	d3.select(svg).attr('width', 11).attr('height', 11).append('rect').attr('width', 11).attr('height', 11).attr('rx', 2)
		.attr('fill', name.startsWith('#') || name.startsWith('rgb') ? name : colourOf(name));
	return svg;
}

function drawLegend() {
	const d = state.device, list = causes.map(([name, title, meaning], i) => {
		const shown = String(!hiddenCauses.has(name));
		const button = el('button', {type: 'button', title: meaning, 'aria-pressed': shown, class: 'cause'}, swatch(name), ' ' + title);
		button.addEventListener('click', () => {
			if (!hiddenCauses.delete(name))
				hiddenCauses.add(name);
			drawLegend();
			drawChart();
		});
		return d.peak[i + 1] > 0 || name === 'live' || name === 'hard' ? el('li', {}, button) : null;
	});
	fill(byId('legend'), ...list, el('li', {}, el('span', {class: 'rule held'}), 'most held'),
		el('li', {}, el('span', {class: 'rule live'}), 'most live'));
}

function drawAxes(width, height, most) {
	const ticks = byteTicks(most, 6);
	const x = d3.axisBottom(chart.scale).ticks(Math.max(2, Math.floor(width / 130)))
		.tickFormat(axisText);
	chart.x.attr('transform', `translate(0,${height - margin.bottom})`).call(x);
	chart.y.attr('transform', `translate(${margin.left},0)`).call(
		d3.axisLeft(chart.up).tickValues(ticks).tickFormat(n => withoutZeros(bytesText(n)))
			.tickSizeInner(-(width - margin.left - margin.right)));
	chart.y.select('.domain').remove();
}

/* Phases are bands above the plot, one row for each that is within another. */
function drawBands() {
	const tall = band.height, [low, high] = chart.scale.range();
	const bands = state.device.phases.filter(p => p.depth < band.rows).map(p => {
		const a = Math.max(low, chart.scale(toX(p.from))), b = Math.min(high, chart.scale(toX(p.to)));
		return {p, a, b};
	}).filter(b => b.b - b.a >= 1);
	const g = chart.bands.selectAll('g').data(bands).join('g');
	g.selectAll('*').remove();
	g.append('rect').attr('x', b => b.a).attr('width', b => b.b - b.a).attr('y', b => b.p.depth * (tall + 1)).attr('height', tall)
		.attr('fill', colourOf('mark')).attr('fill-opacity', b => b.p.depth % 2 ? 0.2 : 0.3).append('title')
		.text(b => `${b.p.text}: ${xText(toX(b.p.from))} to ${xText(toX(b.p.to))}`);
	g.filter(b => b.b - b.a > 40).append('text').attr('class', 'label').attr('pointer-events', 'none').attr('x', b => b.a + 4)
		.attr('y', b => b.p.depth * (tall + 1) + 11).text(b => clipped(b.p.text, (b.b - b.a - 8) / 6.5));
	const marks = state.device.marks.map(m => ({m, x: chart.scale(toX(m.at))})).filter(m => m.x >= low && m.x <= high);
	const line = chart.lines.selectAll('line').data(marks).join('line');
	line.attr('x1', m => m.x).attr('x2', m => m.x).attr('y1', margin.top).attr('y2', chart.up.range()[0])
		.attr('stroke', colourOf('mark')).attr('stroke-dasharray', '2 3');
}

function clipped(text, most) {
	return text.length <= most ? text : text.slice(0, Math.max(1, Math.floor(most) - 1)) + '\u2026';
}

/* Moments are flags that can be chosen; failures are red. */
function drawFlags() {
	const [low, high] = chart.scale.range(), bottom = chart.up.range()[0];
	const flags = state.device.moments.map((m, i) => ({m, i, x: chart.scale(toX(momentIndex(m)))}))
		.filter(f => f.x >= low - 0.5 && f.x <= high + 0.5);
	const g = chart.flags.selectAll('g').data(flags).join('g');
	g.selectAll('*').remove();
	g.attr('class', 'flag').attr('transform', f => `translate(${f.x},0)`).attr('tabindex', 0).attr('role', 'button')
		.attr('aria-label', f => momentTitle(f.m)).attr('aria-pressed', f => String(f.i === state.moment));
	g.append('line').attr('y1', margin.top - 2).attr('y2', bottom).attr('pointer-events', 'none')
		.attr('stroke', f => f.i === state.moment ? colourOf('pick') : flagColour(f.m))
		.attr('stroke-width', f => f.i === state.moment ? 2 : 1).attr('stroke-opacity', f => f.i === state.moment ? 1 : 0.6);
	g.append('path').attr('d', `M0,${margin.top}L-6,${margin.top - 10}L6,${margin.top - 10}Z`)
		.attr('fill', f => f.i === state.moment ? colourOf('pick') : flagColour(f.m));
	g.append('title').text(f => momentTitle(f.m));
	g.on('click', function () {
		selectMoment(d3.select(this).datum().i);
	}).on('keydown', function (given) {
		const e = eventOf(given);
		if (e.key === 'Enter' || e.key === ' ') {
			e.preventDefault();
			selectMoment(d3.select(this).datum().i);
		}
	});
}

function flagColour(moment) {
	return colourOf(moment.kind === 'failure' ? 'bad' : moment.kind === 'mark' ? 'mark' : 'dim');
}

function momentTitle(m) {
	return (m.label ? m.title + ' "' + m.label + '"' : m.title) + ', ' + secondsText(m.time_s);
}

function drawCapacity(most) {
	const end = capacityOf(state.device), shown = end.bytes > 0 && end.bytes <= most ? [end.bytes] : [];
	const line = chart.plot.selectAll('line.capacity').data(shown).join('line');
	const [low, high] = chart.scale.range();
	line.attr('class', 'capacity').attr('x1', low).attr('x2', high).attr('y1', chart.up).attr('y2', chart.up)
		.attr('stroke', colourOf('bad')).attr('stroke-dasharray', '6 4');
	chart.plot.selectAll('text.capacity').data(shown).join('text').attr('class', 'capacity label')
		.attr('x', high - 6).attr('y', c => chart.up(c) + 13).attr('text-anchor', 'end').text(c => end.title + ' ' + bytesText(c));
}

/* What cannot be exceeded, if it is known. */
function capacityOf(device) {
	return device.limit ? {title: 'limit', bytes: device.limit} : {title: 'device', bytes: device.device_bytes};
}

/* The top of the vertical axis: the most that was held, and the limit where that is near. */
function mostOf(device) {
	const limit = capacityOf(device).bytes;
	return Math.max(device.peak[0], limit <= device.peak[0] * 1.5 ? limit * 1.03 : 0, 1);
}

function drawChart() {
	const box = byId('timeline').getBoundingClientRect(), width = box.width, height = box.height, t = state.device.timeline;
	const most = mostOf(state.device), deep = d3.max(state.device.phases, p => p.depth + 1) || 0;
	margin.top = 14 + (band.height + 1) * Math.min(band.rows, deep);
	chart.scale = d3.scaleLinear().domain(state.view).range([margin.left, Math.max(margin.left + 10, width - margin.right)]);
	chart.up = d3.scaleLinear().domain([0, most]).range([height - margin.bottom, margin.top]);
	chart.svg.attr('viewBox', `0 0 ${width} ${height}`);
	chart.svg.select('clipPath rect').attr('x', margin.left).attr('y', margin.top - 1)
		.attr('height', height - margin.top - margin.bottom + 1).attr('width', Math.max(1, width - margin.left - margin.right));
	drawAxes(width, height, most);
	const rows = t.count ? thinned(t, state.view[0], state.view[1], width) : [];
	chart.plot.selectAll('path.layer').data(stacked(t, rows), l => l.name).join('path').attr('class', 'layer')
		.attr('fill', l => colourOf(l.name)).attr('d', l => areaOf(chart.scale, chart.up)(l.edges));
	const lines = [['most_held', 'text', null], ['most_live', 'accent', '3 2']];
	chart.plot.selectAll('path.most').data(lines).join('path').attr('class', 'most').attr('fill', 'none').attr('stroke-width', 1.2)
		.attr('stroke', l => colourOf(l[1])).attr('stroke-dasharray', l => l[2])
		.attr('d', l => lineOf(chart.scale, chart.up, l[0])(rows)).raise();
	drawCapacity(most);
	drawBands();
	drawFlags();
	chart.brush.extent([[margin.left, margin.top], [Math.max(margin.left + 10, width - margin.right), height - margin.bottom]]);
	chart.brushing.call(chart.brush);
	drawCursor();
}

function drawCursor() {
	const shown = state.cursor !== null && state.cursor >= state.view[0] && state.cursor <= state.view[1];
	chart.cursor.attr('display', shown ? null : 'none');
	if (shown)
		chart.cursor.attr('x1', chart.scale(state.cursor)).attr('x2', chart.scale(state.cursor)).attr('y1', margin.top)
			.attr('y2', chart.up.range()[0]).attr('stroke', colourOf('text')).attr('stroke-width', 0.7);
}

/* ---- the strip ---- */

function makeStrip() {
	const svg = d3.select('#overview').append('svg').attr('height', '100%').attr('aria-hidden', 'true');
	strip = {svg, plot: svg.append('g'), brushing: svg.append('g'), showing: false};
	strip.brush = d3.brushX().on('brush end', given => {
		const e = eventOf(given);
		if (strip.showing)
			return;
		if (e.selection)
			setView(...e.selection.map(strip.scale.invert));
		else if (e.type === 'end')
			setView(...wholeView());
	});
	strip.brushing.node().addEventListener('dblclick', () => setView(...wholeView()));
}

function drawStrip() {
	const box = byId('overview').getBoundingClientRect(), whole = wholeView(), t = state.device.timeline;
	strip.scale = d3.scaleLinear().domain(whole).range([margin.left, Math.max(margin.left + 10, box.width - margin.right)]);
	const up = d3.scaleLinear().domain([0, Math.max(1, state.device.peak[0])]).range([box.height - 2, 2]);
	strip.svg.attr('viewBox', `0 0 ${box.width} ${box.height}`);
	const rows = t.count ? thinned(t, whole[0], whole[1], box.width) : [];
	strip.plot.selectAll('path').data(stacked(t, rows), l => l.name).join('path').attr('fill', l => colourOf(l.name))
		.attr('d', l => areaOf(strip.scale, up)(l.edges));
	strip.brush.extent([[margin.left, 0], [Math.max(margin.left + 10, box.width - margin.right), box.height]]);
	strip.brushing.call(strip.brush);
	showView();
}

/* The brush tells of this as of what a person does. */
function showView() {
	strip.showing = true;
	strip.brush.move(strip.brushing, isWhole() ? null : state.view.map(strip.scale));
	strip.showing = false;
}
