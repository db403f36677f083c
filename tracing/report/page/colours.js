/* SPDX-License-Identifier: MIT
 * colours: what blocks of the map are told apart by. Each way sorts them into a few classes with a title and a colour. */

const many = ['#4e79a7', '#f28e2c', '#59a14f', '#e15759', '#76b7b2', '#edc949', '#af7aa1', '#ff9da7', '#9c755f'];
const otherClass = many.length;

const colourings = {
	stack: {title: 'stack', available: d => d.map.blocks.stack.some(s => s > 0), make: d => byRank(d, titlesOf(d.map.blocks.stack,
		stackTitle))},
	size: {title: 'size', available: () => true, make: bySize},
	stream: {title: 'stream', available: d => d.streams.length > 1, make: d => byRank(d, titlesOf(d.map.blocks.stream,
		s => 'stream ' + d.streams[s - 1]))},
	life: {title: 'lifetime', available: () => true, make: byLife},
};

function stackTitle(stack) {
	const frames = state.stack(stack);
	const f = frames.find(g => g.file.endsWith('.py') && !/\/(torch|site-packages\/torch)\//.test(g.file)) || frames[0];
	if (!f)
		return '';
	return (f.file ? f.file.replace(/^.*\//, '') + (f.line ? ':' + f.line : '') + ' ' : '') + functionName(f);
}

/* What each is called; '' if it is not known. */
function titlesOf(values, title) {
	const known = new Map([[0, '']]);
	return Array.from(values, v => {
		if (!known.has(v))
			known.set(v, title(v));
		return known.get(v);
	});
}

/* A colour for each of those that cover the most, and one for the others and what is not known. */
function byRank(d, titles) {
	const area = new Map(), b = d.map.blocks;
	for (let i = 0; i < b.count; i++)
		area.set(titles[i], (area.get(titles[i]) || 0) + b.size[i] * (b.gone[i] - b.born[i]));
	const unknown = area.delete('');
	const ranked = Array.from(area.keys()).sort((x, y) => area.get(y) - area.get(x) || (x < y ? -1 : 1));
	const rank = new Map(ranked.slice(0, otherClass).map((title, i) => [title, i]));
	const of = new Uint8Array(b.count);
	for (let i = 0; i < b.count; i++)
		of[i] = rank.has(titles[i]) ? rank.get(titles[i]) : Math.min(ranked.length, otherClass);
	const classes = ranked.slice(0, otherClass).map((title, i) => ({title, colour: many[i]}));
	const more = ranked.length - classes.length;
	const rest = [more ? countText(more) + ' others' : null, unknown ? 'not known' : null].filter(Boolean);
	if (rest.length)
		classes.push({title: rest.join(', '), colour: colourOf('map-other')});
	return {of, classes};
}

/* `limits` in ascending order; value < limits[k] is of class k. */
function byLimits(values, count, limits, titles, colours) {
	const of = new Uint8Array(count);
	for (let i = 0; i < count; i++)
		of[i] = d3.bisectRight(limits, values(i));
	return {of, classes: titles.map((title, i) => ({title, colour: colours[i]}))};
}

function scaleColours(count) {
	return d3.range(count).map(i => d3.interpolateViridis(0.08 + 0.84 * i / (count - 1)));
}

function bySize(d) {
	const b = d.map.blocks, limits = [65536, 1048577, 4194304, 16777216, 67108864, 268435456];
	const titles = ['below 64 KiB', 'up to 1 MiB', 'below 4 MiB', 'below 16 MiB', 'below 64 MiB', 'below 256 MiB',
		'256 MiB and more'];
	return byLimits(i => b.asked[i], b.count, limits, titles, scaleColours(7));
}

function byLife(d) {
	const b = d.map.blocks, limits = [0.001, 0.01, 0.1, 1, 10, Infinity];
	const titles = ['below 1 ms', 'below 10 ms', 'below 0.1 s', 'below 1 s', 'below 10 s', '10 s and more', 'never freed'];
	const colours = scaleColours(6).concat(colourOf('hard'));
	return byLimits(i => b.freed[i] ? b.life[i] / 1e6 : Infinity, b.count, limits, titles, colours);
}
