/* SPDX-License-Identifier: MIT
 * main: puts the page together. Mistakes are counted where a test finds them: <body data-errors>. */

const mistakes = [];

function mistake(text) {
	mistakes.push(String(text));
	document.body.dataset.errors = String(mistakes.length);
	const box = byId('broken');
	box.textContent = 'This page does not show all that it should: ' + mistakes[0];
	box.hidden = false;
}

/* What is large is unpacked when it is first looked at. */
function openDevice(packed) {
	const d = Object.assign({}, packed, {timeline: timelineOf(packed.timeline), width: packed.map.width,
		clock: clock(packed.times, packed.map.width)});
	let unpacked = null;
	Object.defineProperty(d, 'map', {get: () => unpacked || (unpacked = mapOf(packed.map))});
	return d;
}

function selectDevice(d) {
	state.device = d;
	state.axis = betterAxis(d);
	state.view = wholeView();
	state.group = null;
	state.cursor = null;
	state.moment = Math.max(0, Math.min(d.worst, d.moments.length - 1));
	if (!colourings[state.colour].available(d) || state.colour === 'size')
		state.colour = colourings.stack.available(d) ? 'stack' : 'size';
	map.y = [0, Math.max(1, d.map.height)];
	changed('device');
}

function drawDevice() {
	const d = state.device;
	const others = state.devices.length > 1 ? `, one of ${state.devices.length} devices` : '';
	byId('what').textContent = deviceName(d) + others;
	document.title = 'Cleave: ' + deviceName(d);
	for (const option of byId('colour').options)
		option.disabled = !colourings[option.value].available(d);
	byId('timeline-section').hidden = d.timeline.count === 0;
	byId('map-section').hidden = d.map.height === 0;
	drawDevices();
	drawSummary();
	drawMoments();
	drawFailures();
	drawTrials();
	drawReservations();
	drawInfo();
	showBlock(-1);
}

function drawLook() {
	byId('colour').value = state.colour;
	for (const b of document.querySelectorAll('[data-axis]'))
		b.setAttribute('aria-pressed', String(b.dataset.axis === state.axis));
	if (!byId('timeline-section').hidden) {
		drawLegend();
		drawChart();
		drawStrip();
	}
	if (!byId('map-section').hidden) {
		drawMapLegend();
		redrawMap();
	}
}

function listen() {
	onChange('device', drawDevice);
	onChange('device look', drawLook);
	onChange('device moment', drawCulprits);
	onChange('view moment', () => {
		if (!byId('timeline-section').hidden) {
			drawChart();
			showView();
		}
		redrawMap();
	});
	onChange('cursor', () => {
		if (!byId('timeline-section').hidden)
			drawCursor();
		drawMapCursor();
	});
	onChange('group', () => {
		drawMapLegend();
		markGroup();
		redrawMap();
	});
	onChange('colour', () => {
		drawMapLegend();
		redrawMap();
	});
}

function makeControls() {
	fill(byId('colour'), ...Object.keys(colourings).map(key => el('option', {value: key}, colourings[key].title)));
	byId('colour').addEventListener('change', event => {
		state.colour = event.target.value;
		changed('colour');
	});
	for (const b of document.querySelectorAll('[data-axis]'))
		b.addEventListener('click', () => setAxis(b.dataset.axis));
	byId('whole').addEventListener('click', () => setView(...wholeView()));
	byId('map-in').addEventListener('click', () => zoomMap(null, 1.6));
	byId('map-out').addEventListener('click', () => zoomMap(null, 1 / 1.6));
	byId('map-whole').addEventListener('click', wholeMap);
	map.canvas = document.querySelector('#map canvas');
	makeChart();
	makeStrip();
	makePointing();
	let width = 0;
	new ResizeObserver(() => {
		const now = byId('map').clientWidth + byId('timeline').clientWidth;
		if (now !== width && state.device)
			drawLook();
		width = now;
	}).observe(document.querySelector('main'));
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
		map.order = null;
		if (state.device)
			changed('device');
	});
}

function begin() {
	const data = JSON.parse(byId('data').textContent);
	state.stack = stackTable(data.stacks);
	state.devices = data.devices.map(openDevice);
	document.querySelector('main').hidden = false;
	makeControls();
	listen();
	selectDevice(state.devices[0]);
	document.body.dataset.ready = '1';
}

document.body.dataset.errors = '0';
addEventListener('error', event => mistake(event.message));
addEventListener('unhandledrejection', event => mistake(event.reason));
document.addEventListener('securitypolicyviolation', event => mistake(event.violatedDirective + ' ' + event.blockedURI));
try {
	begin();
} catch (problem) {
	mistake(problem && problem.stack || problem);
}
