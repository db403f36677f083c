/* SPDX-License-Identifier: MIT
 * units: numbers as people read them, and elements. What comes from a trace is text, and is never taken as HTML. */

const byteUnits = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

function bytesText(n) {
	const negative = n < 0;
	let v = Math.abs(n), unit = 0;
	while (v >= 1023.5 && unit < byteUnits.length - 1) {
		v /= 1024;
		unit++;
	}
	const text = unit === 0 ? String(v) : v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2);
	return (negative ? '\u2212' : '') + text + ' ' + byteUnits[unit];
}

/* "2 GiB" for "2.00 GiB", "1.5 s" for "1.50 s" */
function withoutZeros(text) {
	return text.replace(/(\.\d*?)0+ /, '$1 ').replace('. ', ' ');
}

/* "1 frame", "1,024 frames" */
function countOf(n, what) {
	return countText(n) + ' ' + what + (n === 1 ? '' : 's');
}

function countText(n) {
	return Math.round(n).toLocaleString('en-US');
}

function secondsText(s) {
	const a = Math.abs(s);
	if (a >= 7200)
		return (s / 3600).toFixed(1) + ' h';
	if (a >= 120)
		return (s / 60).toFixed(1) + ' min';
	if (a >= 1)
		return s.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : 2) + ' s';
	if (a >= 1e-3)
		return (s * 1e3).toFixed(a >= 0.1 ? 0 : a >= 0.01 ? 1 : 2) + ' ms';
	return a === 0 ? '0 s' : Math.round(s * 1e6) + ' \u00b5s';
}

function hexText(n) {
	return '0x' + Math.round(n).toString(16);
}

function percentText(part, whole) {
	const p = whole > 0 ? 100 * part / whole : 0;
	return (p >= 10 || p === 0 ? p.toFixed(0) : p.toFixed(1)) + ' %';
}

/* el('td', {class: 'n', title: '..'}, 'text', node, ..) */
function el(name, attributes, ...children) {
	const e = document.createElement(name);
	for (const key of Object.keys(attributes || {}))
		if (attributes[key] !== undefined && attributes[key] !== null && attributes[key] !== false)
			e.setAttribute(key, attributes[key] === true ? '' : attributes[key]);
	for (const child of children)
		if (child !== null && child !== undefined)
			e.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
	return e;
}

function byId(id) {
	return document.getElementById(id);
}

function fill(target, ...children) {
	target.textContent = '';
	for (const child of children)
		if (child !== null && child !== undefined)
			target.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
}

/* [what, value].. */
function pairTable(pairs) {
	return el('table', {class: 'pairs'}, ...pairs.map(([what, value]) => el('tr', {}, el('td', {}, what), el('td', {}, value))));
}

/* A size, with the exact number on hover. */
function bytes(n) {
	return el('span', {title: countText(n) + ' bytes'}, bytesText(n));
}

function cell(content, kind) {
	return el('td', {class: kind}, content);
}

/* columns: {head, kind: class of its cells, title: what it is, of: (item, index, items) => content}. `finish` gets each row. */
function fillTable(id, columns, items, finish) {
	const heads = columns.map(c => el('th', {class: c.kind, title: c.title, scope: 'col'}, c.head));
	const rows = items.map((item, i) => {
		const row = el('tr', {}, ...columns.map(c => cell(c.of(item, i, items), c.kind)));
		if (finish)
			finish(row, item, i);
		return row;
	});
	fill(byId(id), el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...rows));
}

/* A native frame without symbols has an address alone. */
function functionName(f) {
	return f.name || (f.address ? hexText(f.address) : '?');
}

function frameLine(f) {
	const line = el('li', {}, functionName(f));
	if (f.file)
		line.appendChild(el('span', {class: 'where'}, '  ' + f.file + (f.line ? ':' + f.line : '')));
	return line;
}

function stackList(frames, most) {
	const list = el('ol', {class: 'stack'});
	for (const f of frames.slice(0, most || frames.length))
		list.appendChild(frameLine(f));
	if (most && frames.length > most)
		list.appendChild(el('li', {class: 'where'}, '\u2026 ' + countText(frames.length - most) + ' more'));
	return list;
}

function colourOf(name) {
	return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

/* ---- the tooltip: one for the page ---- */

function showTip(event, ...content) {
	const tip = byId('tip');
	fill(tip, ...content);
	tip.hidden = false;
	const box = tip.getBoundingClientRect(), gap = 14;
	const x = event.clientX + gap + box.width < innerWidth ? event.clientX + gap : Math.max(4, event.clientX - gap - box.width);
	const y = event.clientY + gap + box.height < innerHeight ? event.clientY + gap : Math.max(4, event.clientY - gap - box.height);
	tip.style.left = x + 'px';
	tip.style.top = y + 'px';
}

function hideTip() {
	byId('tip').hidden = true;
}

/* d3 to version 5 has the event in a variable, later ones hand it on. */
function eventOf(given) {
	return d3.event || given;
}

/* Pixels from the upper left corner of an element. */
function pointIn(element, event) {
	const box = element.getBoundingClientRect();
	return [event.clientX - box.left, event.clientY - box.top];
}

/* Round numbers of bytes from 0 to `most`, some `wanted` of them. */
function byteTicks(most, wanted) {
	if (!(most > 0))
		return [0];
	let step = Math.pow(2, Math.ceil(Math.log2(most / wanted)));
	if (most / step < wanted / 2)
		step /= 2;
	return d3.range(0, most * 1.0001, step);
}
