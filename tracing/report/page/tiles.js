/* SPDX-License-Identifier: MIT
 * tiles: the blocks that are not kept one by one, as a grid of shares; each coarser grid has a quarter of the tiles. */

function halved(grid, columns, rows) {
	const c2 = Math.max(1, columns >> 1), r2 = Math.max(1, rows >> 1), to = new Uint8Array(c2 * r2);
	for (let c = 0; c < c2; c++)
		for (let r = 0; r < r2; r++) {
			const c1 = Math.min(columns - 1, 2 * c + 1), r1 = Math.min(rows - 1, 2 * r + 1);
			const sum = grid[2 * c * rows + 2 * r] + grid[c1 * rows + 2 * r] + grid[2 * c * rows + r1] + grid[c1 * rows + r1];
			to[c * r2 + r] = (sum + 3) >> 2;
		}
	return {grid: to, columns: c2, rows: r2};
}

/* The finest first. */
function tileLevels(layer, map) {
	if (!layer.tiles)
		return [];
	const levels = [{grid: layer.tiles, columns: map.columns, rows: map.rows}];
	for (let l = levels[0]; l.columns > 64 && l.rows > 32; l = levels[levels.length - 1])
		levels.push(halved(l.grid, l.columns, l.rows));
	return levels;
}

/* The upper row of the picture has the highest addresses. */
function tileImage(level, colour) {
	const canvas = document.createElement('canvas');
	canvas.width = level.columns;
	canvas.height = level.rows;
	const context = canvas.getContext('2d'), image = context.createImageData(level.columns, level.rows), c = d3.rgb(colour);
	for (let x = 0; x < level.columns; x++)
		for (let y = 0; y < level.rows; y++) {
			const at = 4 * ((level.rows - 1 - y) * level.columns + x);
			image.data[at] = c.r;
			image.data[at + 1] = c.g;
			image.data[at + 2] = c.b;
			image.data[at + 3] = level.grid[x * level.rows + y];
		}
	context.putImageData(image, 0, 0);
	return canvas;
}

/* Draws what the view shows of a layer's tiles. x: place of an event on the canvas; y: of an address of the picture. */
function drawTiles(context, layer, map, colour, x, y) {
	if (!layer.tiles)
		return;
	if (!layer.levels)
		layer.levels = tileLevels(layer, map);
	const wide = Math.abs(x(map.width) - x(0)), tall = Math.abs(y(map.height) - y(0));
	let level = layer.levels[0];
	for (const l of layer.levels)
		if (l.columns >= wide && l.rows >= tall)
			level = l;
	if (level.colour !== colour) {
		level.image = tileImage(level, colour);
		level.colour = colour;
	}
	context.imageSmoothingEnabled = false;
	const top = y(map.height), right = context.canvas.clientWidth;
	if (state.axis === 'events') {
		context.drawImage(level.image, x(0), top, wide, tall);
		return;
	}
	/* In time, columns are of different width. */
	for (let c = 0, from = x(0); c < level.columns; c++) {
		const to = x((c + 1) * map.width / level.columns);
		if (to > 0 && from < right && to - from > 0.05) {
			context.drawImage(level.image, c, 0, 1, level.rows, from, top, to - from, tall);
			from = to;
		} else if (to <= 0 || from >= right)
			from = to;
	}
}
