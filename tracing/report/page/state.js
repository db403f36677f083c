/* SPDX-License-Identifier: MIT
 * state: what is looked at. One device at a time; a stretch of its history; a moment. Whoever changes it says so by changed(), and
 * whoever shows it has asked to be told by onChange(). */

const state = {
	devices: [],
	device: null,   /* one of them */
	axis: 'time',   /* or 'events': what the horizontal axis shows */
	view: [0, 1],   /* of it, in units of the axis: seconds or events */
	moment: 0,      /* index into device.moments */
	cursor: null,   /* place under the pointer, in units of the axis */
	colour: 'size', /* of blocks in the map */
	group: null,    /* whose blocks are shown: {title, matches: (stack, asked, stream) => bool} */
};

const listeners = {device: [], view: [], moment: [], cursor: [], group: [], colour: [], look: []};

function onChange(what, listener) {
	for (const name of what.split(' '))
		listeners[name].push(listener);
}

function changed(what) {
	for (const listener of listeners[what])
		listener();
}

/* ---- the horizontal axis ---- */

function toX(index) {
	return state.axis === 'time' ? state.device.clock.at(index) : index;
}

function toIndex(x) {
	return state.axis === 'time' ? state.device.clock.index(x) : x;
}

function wholeView() {
	const d = state.device;
	return state.axis === 'time' ? [d.clock.begin, d.clock.end] : [0, d.width];
}

function leastView() {
	const [low, high] = wholeView();
	return Math.min(state.axis === 'time' ? 1e-6 : 1, high - low);
}

function setView(from, to) {
	const [low, high] = wholeView();
	let width = Math.min(Math.max(to - from, leastView()), high - low);
	const begin = Math.min(Math.max(from + (to - from - width) / 2, low), high - width);
	state.view = [begin, begin + width];
	changed('view');
}

function isWhole() {
	const [low, high] = wholeView();
	return state.view[0] <= low && state.view[1] >= high;
}

/* By `factor` about a place that stays where it is. */
function zoomView(about, factor) {
	const [a, b] = state.view;
	setView(about - (about - a) / factor, about + (b - about) / factor);
}

/* At a mark of the axis. */
function axisText(x) {
	return state.axis === 'time' ? withoutZeros(secondsText(x)) : countText(x);
}

function xText(x) {
	return state.axis === 'time' ? secondsText(x) : 'event ' + countText(x);
}

function setAxis(axis) {
	if (axis === state.axis)
		return;
	const whole = isWhole(), ends = state.view.map(toIndex);
	state.axis = axis;
	state.cursor = null;
	changed('look');
	if (whole)
		setView(...wholeView());
	else
		setView(...ends.map(toX));
}

/* Time says more, unless most of what happens is lost in a small part of it. */
function betterAxis(device) {
	const whole = device.clock.end - device.clock.begin;
	if (!(whole > 0))
		return 'events';
	let busy = 0;
	for (let i = 0; i < 100; i++)
		busy += device.clock.at((i + 1) * device.width / 100) - device.clock.at(i * device.width / 100) > whole / 1000 ? 1 : 0;
	return busy >= 25 ? 'time' : 'events';
}

/* The state after so many events is drawn where the last of them is. */
function momentIndex(moment) {
	return Math.max(0, moment.event - 1);
}

function selectMoment(index) {
	state.moment = index;
	changed('moment');
}

function setGroup(group) {
	state.group = group;
	changed('group');
}
