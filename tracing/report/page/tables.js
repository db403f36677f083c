/* SPDX-License-Identifier: MIT
 * tables: what the analysis says, as tables and paragraphs. */

function figure(title, value, exact, alarm) {
	return el('div', {class: alarm ? 'alarm' : null, title: exact}, el('dt', {}, title), el('dd', {}, value));
}

/* The most of a cause at any moment. */
function peakOf(d, cause) {
	return d.peak[1 + causes.findIndex(([name]) => name === cause)];
}

function heldOverLive(d) {
	const live = peakOf(d, 'live');
	return live ? (d.peak[0] / live).toFixed(2) : '\u2013';
}

function drawSummary() {
	const d = state.device, held = d.peak[0], live = peakOf(d, 'live'), hard = peakOf(d, 'hard');
	const size = (title, n, more, alarm) => figure(title, bytesText(n), countText(n) + ' bytes' + (more ? '; ' + more : ''), alarm);
	byId('explanation').textContent = d.summary;
	/* What makes all else doubtful is said at the top as well. */
	fill(byId('cautions'), ...d.info.filter(([what]) => what === 'not read' || what === 'events lost')
		.map(([what, value]) => el('li', {}, what + ': ' + value)));
	fill(byId('figures'), figure('failed requests', countText(d.failures), null, d.failures > 0), size('most live', live),
		size('most held', held), figure('held / live', heldOverLive(d), 'most held over most live'),
		size('stranded at most', hard, percentText(hard, held) + ' of the most held', hard > held / 10),
		d.limit ? size('limit', d.limit) : null, d.device_bytes ? size('device', d.device_bytes) : null,
		d.has_history ? figure('requests', countText(d.allocs)) : null,
		d.has_history ? figure('recorded', secondsText(d.duration_s)) : null);
}

/* ---- moments and who pins memory at them ---- */

function drawMoments() {
	fill(byId('moments'), ...state.device.moments.map((m, i) => {
		const b = el('button', {type: 'button', class: m.kind, 'aria-pressed': String(i === state.moment)}, momentTitle(m));
		b.addEventListener('click', () => selectMoment(i));
		return b;
	}));
}

function drawMomentText(m) {
	const of = {};
	causes.forEach(([name], i) => of[name] = m.sum[i + 1]);
	const parts = ['held ', bytes(m.sum[0]), ', live ', bytes(of.live), ' in ' + countOf(m.live_blocks, 'block') + ', stranded ',
		bytes(of.hard), ' (' + percentText(of.hard, m.sum[0]) + ' of what is held)'];
	if (of.soft)
		parts.push(', free as a whole ', bytes(of.soft));
	if (of.stream)
		parts.push(', waiting for streams ', bytes(of.stream));
	if (m.frames)
		parts.push(`; ${countText(m.frames_occupied)} of ${countOf(m.frames, 'frame')} hold a live block`);
	if (m.largest_hole)
		parts.push('; largest free range ', bytes(m.largest_hole));
	fill(byId('moment-text'), ...parts, '.');
}

/* Of a state alone nothing is known of lifetimes. */
function lifeText(pair) {
	return state.device.has_history ? rangeText(pair) : '?';
}

function rangeText(pair) {
	const [a, b] = pair.map(s => s === null || s < 0 ? '?' : secondsText(s));
	return a === b ? a : a + ' \u2013 ' + b;
}

/* How long the blocks of a group still live. */
function leftText(g) {
	if (!state.device.has_history)
		return '?';
	if (g.never_freed >= g.blocks)
		return 'never freed';
	return rangeText(g.left.map(s => Math.max(0, s))) + (g.never_freed ? ' (' + countText(g.never_freed) + ' never)' : '');
}

/* A bar beside a number, so that the large ones are seen at once. */
function meter(part, whole) {
	const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
	d3.select(svg).attr('class', 'meter').attr('width', 60).attr('height', 9).attr('aria-hidden', 'true').append('rect')
		.attr('height', 9).attr('rx', 2).attr('width', whole > 0 ? Math.max(part > 0 ? 1 : 0, 60 * part / whole) : 0)
		.attr('fill', colourOf('hard'));
	return svg;
}

function groupDetails(g) {
	const frames = state.stack(g.stack), sample = g.sample, lines = [];
	if (sample) {
		lines.push(['for example', `${bytesText(sample.size)} at ${sample.addr}` +
			(sample.stream === null ? '' : ', stream ' + state.device.streams[sample.stream])]);
		if (sample.cut_from)
			lines.push(['cut from', 'a free range of ' + bytesText(sample.cut_from)]);
	}
	lines.push(['pins', `${countOf(g.frames, 'frame')}, ${countText(g.frames_alone)} of them alone (${bytesText(g.frame_bytes)})`]);
	if (g.shared)
		lines.push(['with others', 'up to ' + bytesText(g.shared) + ' more']);
	if (g.would_serve >= 0)
		lines.push(['without it', 'the request would ' + (g.would_serve ? 'have been served' : 'still have failed')]);
	const stack = frames.length ? stackList(frames) : el('p', {class: 'hint'}, 'No stack was recorded.');
	return el('div', {}, pairTable(lines), stack);
}

const groupColumns = [
	{head: '#', kind: 'n', of: (g, i) => i + 1},
	{head: 'comes free', kind: 'n', title: 'stranded bytes that would not be stranded without these blocks',
		of: (g, i, all) => el('span', {}, bytes(g.stranded), ' ', meter(g.stranded, d3.max(all, o => o.stranded)))},
	{head: 'in this order', kind: 'n', title: 'what it adds if all above it have gone, too', of: g => bytes(g.marginal)},
	{head: 'blocks', kind: 'n', of: g => countText(g.blocks)},
	{head: 'bytes', kind: 'n', title: 'that its live blocks take', of: g => bytes(g.bytes)},
	{head: 'lived', kind: 'n', title: 'at that moment, since their allocation', of: g => lifeText(g.age)},
	{head: 'will live', kind: 'n', title: 'from that moment until they are freed', of: leftText},
	{head: 'who', kind: 'name', of: g => g.name},
];

/* Makes a line of the table one that can be opened and chosen. */
function liveRow(row, g, i) {
	const opener = el('button', {type: 'button', 'aria-expanded': 'false', title: 'stack and details'}, '\u25b8');
	row.classList.add('pick');
	row.tabIndex = 0;
	row.lastChild.prepend(opener, ' ');
	let details = null;
	opener.addEventListener('click', event => {
		event.stopPropagation();
		if (!details) {
			details = el('tr', {}, el('td', {}), el('td', {colspan: groupColumns.length - 1}, groupDetails(g)));
			row.after(details);
		} else
			details.hidden = !details.hidden;
		opener.textContent = details.hidden ? '\u25b8' : '\u25be';
		opener.setAttribute('aria-expanded', String(!details.hidden));
	});
	const group = groupOf(g.name, g.stack, g.size, g.stream === null ? 0 : g.stream + 1);
	const choose = () => setGroup(state.group && state.group.key === g ? null : Object.assign(group, {key: g}));
	row.addEventListener('click', choose);
	row.addEventListener('keydown', event => {
		if (event.target === row && (event.key === 'Enter' || event.key === ' ')) {
			event.preventDefault();
			choose();
		}
	});
	row.dataset.group = String(i);
}

function drawCulprits() {
	const m = state.device.moments[state.moment];
	for (const b of byId('moments').children)
		b.setAttribute('aria-pressed', String(b === byId('moments').children[state.moment]));
	if (!m) {
		fill(byId('moment-text'), 'There is no moment to tell of.');
		fill(byId('culprits'));
		fill(byId('culprits-rest'));
		byId('holes-details').hidden = true;
		return;
	}
	drawMomentText(m);
	fillTable('culprits', groupColumns, m.groups, liveRow);
	const rest = m.group_count - m.groups.length;
	fill(byId('culprits-rest'), m.groups.length === 0 ? 'Nothing pins memory here.' : 'Click a line to see its blocks in the map.'
		+ (rest > 0 ? ` ${countText(rest)} more groups hold live blocks.` : '')
		+ (m.pinned_by_others ? ` ${bytesText(m.pinned_by_others)} stay stranded without those listed.` : ''));
	drawHoles(m);
	markGroup();
}

function blockText(b) {
	if (!b)
		return '\u2013';
	const frames = state.stack(b.stack);
	return bytesText(b.size) + (frames.length ? ', ' + stackTitle(b.stack) : '') + (b.freed === null && state.device.has_history ? ', never freed' : '');
}

const holeColumns = [
	{head: 'size', kind: 'n', of: h => bytes(h.size)},
	{head: 'stranded', kind: 'n', of: h => bytes(h.stranded)},
	{head: 'address', of: h => h.addr},
	{head: 'below it', of: h => blockText(h.left)},
	{head: 'above it', of: h => blockText(h.right)},
	{head: 'left by cutting off', title: 'the block that was placed in a larger free range and left this',
		of: h => blockText(h.cutter)},
];

function drawHoles(m) {
	byId('holes-details').hidden = m.holes.length === 0;
	fillTable('holes', holeColumns, m.holes);
}

function markGroup() {
	for (const row of byId('culprits').querySelectorAll('tr.pick')) {
		const m = state.device.moments[state.moment], g = m.groups[Number(row.dataset.group)];
		const chosen = Boolean(state.group && state.group.key === g);
		row.classList.toggle('chosen', chosen);
		row.setAttribute('aria-selected', String(chosen));
	}
}

/* ---- failures, trials, reservations, the trace ---- */

/* The first one is told, the others on demand. */
function failureCard(m, i, first) {
	const f = m.failure, show = el('button', {type: 'button'}, 'show this moment'), frames = state.stack(f.stack);
	show.addEventListener('click', () => {
		selectMoment(i);
		byId('culprits-section').scrollIntoView({behavior: 'smooth'});
	});
	const lines = [['asked for', bytesText(f.asked)]];
	if (f.needed && f.needed !== f.asked)
		lines.push(['needed from the driver', bytesText(f.needed)]);
	if (f.device_free !== null)
		lines.push(['the device could give', bytesText(f.device_free)]);
	if (f.limit !== null)
		lines.push(['limit', bytesText(f.limit)]);
	lines.push(['free for this request', bytesText(f.usable_free) + ', the largest piece ' + bytesText(f.largest_usable)]);
	if (f.foreign_free)
		lines.push(['free for others', bytesText(f.foreign_free) + ', of other streams and pools']);
	if (f.repeats)
		lines.push(['again', countText(f.repeats) + ' times later']);
	const more = el('details', {}, el('summary', {}, 'numbers' + (frames.length ? ' and stack' : '')), pairTable(lines),
		frames.length ? stackList(frames) : null);
	return el('details', {class: 'failure-card', open: first},
		el('summary', {}, `${bytesText(f.asked)} at ${secondsText(m.time_s)}`), el('p', {}, f.text), show, more);
}

function drawFailures() {
	const failed = state.device.moments.map((m, i) => [m, i]).filter(([m]) => m.failure);
	byId('failures-section').hidden = failed.length === 0;
	fill(byId('failures'), ...failed.map(([m, i], k) => failureCard(m, i, k === 0)));
}

function verdict(good, text) {
	return el('span', {class: good ? 'good' : 'bad'}, text);
}

const trialColumns = [
	{head: 'change', kind: 'name', of: t => t.what},
	{head: 'helps', of: (t, i) => t.confirmed ? verdict(true, 'yes') : i ? 'no' : ''},
	{head: 'served all', of: t => verdict(t.completed, t.completed ? 'yes' : `no, ${countText(t.failures)} failed`)},
	{head: 'most held', kind: 'n', of: t => bytes(t.peak_held)},
	{head: 'saves', kind: 'n', of: (t, i) => i ? bytes(t.saved) : ''},
	{head: 'stranded at most', kind: 'n', of: t => bytes(t.peak_stranded)},
	{head: 'policy', kind: 'name', title: 'as cleave replay --policy takes it', of: t => t.policy},
];

function drawTrials() {
	byId('trials-section').hidden = state.device.trials.length === 0;
	fillTable('trials', trialColumns, state.device.trials);
}

function reservationVerdict(r) {
	if (r.missed)
		return verdict(false, 'too few: ' + countText(r.missed) + ' requests found nothing left');
	if (r.yielded)
		return verdict(false, countText(r.yielded) + ' given up to serve others');
	if (r.held < r.slots)
		return verdict(false, countText(r.slots - r.held) + ' never held');
	if (r.served < r.slots)
		return countText(r.slots - r.served) + (r.ended ? ' not used' : ' not used yet');
	return verdict(true, 'as planned');
}

const reservationColumns = [
	{head: 'name', kind: 'name', of: r => r.name + (r.hard ? ' (hard)' : '')},
	{head: 'slot', kind: 'n', of: r => bytes(r.slot)},
	{head: 'planned', kind: 'n', of: r => countText(r.slots)},
	{head: 'held', kind: 'n', of: r => countText(r.held)},
	{head: 'most at once', kind: 'n', of: r => bytes(r.held_most)},
	{head: 'served', kind: 'n', of: r => countText(r.served)},
	{head: 'given up', kind: 'n', of: r => countText(r.yielded)},
	{head: 'found none left', kind: 'n', of: r => countText(r.missed)},
	{head: '', of: reservationVerdict},
];

function drawReservations() {
	byId('reservations-section').hidden = state.device.reservations.length === 0;
	fillTable('reservations', reservationColumns, state.device.reservations);
}

function drawInfo() {
	const d = state.device;
	const counts = [countOf(d.allocs, 'allocation'), countOf(d.events, 'event'), countOf(d.streams.length, 'stream')];
	const rows = d.info.concat([['requests', counts.join(', ')]]);
	fill(byId('info'), el('tbody', {}, ...rows.map(([what, value]) => el('tr', {}, cell(what), cell(value)))));
}

/* ---- several devices ---- */

function spark(d) {
	const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg'), w = 220, h = 34, t = d.timeline;
	const x = d3.scaleLinear().domain([0, Math.max(1, t.count - 1)]).range([0, w]);
	const y = d3.scaleLinear().domain([0, d3.max(state.devices, o => o.peak[0]) || 1]).range([h, 1]);
	const every = Math.max(1, Math.floor(t.count / w)), at = d3.range(0, t.count, every);
	const s = d3.select(svg).attr('width', w).attr('height', h).attr('aria-hidden', 'true');
	const area = (low, high, colour) => s.append('path').attr('fill', colourOf(colour))
		.attr('d', d3.area().x(i => x(i)).y0(i => y(low(i))).y1(i => y(high(i)))(at));
	area(() => 0, i => t.held[i], 'soft');
	area(() => 0, i => t.live[i], 'live');
	area(i => t.live[i], i => t.live[i] + t.hard[i], 'hard');
	return svg;
}

/* The file, with its folders if another one has the same name. */
function deviceName(d) {
	const name = f => f.replace(/^.*\//, ''), others = state.devices.filter(o => o !== d);
	const file = others.some(o => o.file !== d.file && name(o.file) === name(d.file)) ? d.file : name(d.file);
	return file + (d.device > 0 || others.some(o => o.file === d.file) ? ', device ' + d.device : '');
}

function openButton(d) {
	const open = el('button', {type: 'button', 'aria-pressed': String(d === state.device)}, deviceName(d));
	open.addEventListener('click', () => selectDevice(d));
	return open;
}

const deviceColumns = [
	{head: 'device', of: openButton},
	{head: 'failed', kind: 'n', of: d => d.failures ? verdict(false, countText(d.failures)) : '0'},
	{head: 'most live', kind: 'n', of: d => bytes(peakOf(d, 'live'))},
	{head: 'most held', kind: 'n', of: d => bytes(d.peak[0])},
	{head: 'held / live', kind: 'n', of: heldOverLive},
	{head: 'stranded at most', kind: 'n', of: d => bytes(peakOf(d, 'hard'))},
	{head: 'held, live, stranded over its events', of: spark},
];

function drawDevices() {
	byId('devices').hidden = state.devices.length < 2;
	fillTable('devices-table', deviceColumns, state.devices.length > 1 ? state.devices : [],
		(row, d) => row.classList.toggle('chosen', d === state.device));
}
