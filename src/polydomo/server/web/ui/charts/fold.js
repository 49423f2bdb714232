// A graph of up to 100,000 nodes as boxes that fit a page: nodes in layers from left to right, and those that are alike in one box. Pure
// functions, tested in tests/server/web/test_flow_pages.py.

const ALONE = 8; // as many nodes that are alike have a box each
const COLUMNS = 40;
const ROWS = 40; // boxes in a column

/** The layer of each node: how many nodes are on the longest way to it. `needs[number]` are the numbers of the nodes that it needs. */
export function layersOf(needs) {
  const layers = new Array(needs.length).fill(0);
  const left = needs.map((sources) => sources.length);
  const followers = needs.map(() => []);
  needs.forEach((sources, number) => { for (const source of sources) followers[source].push(number); });
  const ready = left.flatMap((count, number) => (count ? [] : [number]));
  for (let next = 0; next < ready.length; next += 1) {
    for (const follower of followers[ready[next]]) {
      layers[follower] = Math.max(layers[follower], layers[ready[next]] + 1);
      left[follower] -= 1;
      if (!left[follower]) ready.push(follower);
    }
  }
  return layers;
}

/** For each node the key of those that are alike: in one layer, of one service, and fed by the same groups. */
function alike(services, needs, layers) {
  const keys = [];
  const numbers = new Map();
  const order = layers.map((_, number) => number).sort((a, b) => layers[a] - layers[b]);
  for (const number of order) {
    const sources = [...new Set(needs[number].map((source) => keys[source]))].sort((a, b) => a - b);
    const key = `${layers[number]} ${services[number]} ${sources.join()}`;
    if (!numbers.has(key)) numbers.set(key, numbers.size);
    keys[number] = numbers.get(key);
  }
  return keys;
}

/**
 * Boxes: [{column, numbers, row}] and the links between them as pairs of indexes. First nodes that are alike share a box if they are more
 * than a few; if that is still too much for a page, all of them, then all of a service in a layer, then whole layers. `per` is the number
 * of layers in a column.
 */
export function fold(services, needs) {
  const layers = layersOf(needs);
  const per = Math.ceil((1 + layers.reduce((most, layer) => Math.max(most, layer), 0)) / COLUMNS);
  const columns = layers.map((layer) => Math.floor(layer / per));
  const same = per === 1 ? alike(services, needs, layers) : null;
  const ways = [
    same && [same, ALONE],
    same && [same, 1],
    [columns.map((column, number) => `${column} ${services[number]}`), 1],
    [columns, 1],
  ].filter(Boolean);
  for (const [keys, alone] of ways) {
    const boxes = boxesOf(keys, columns, alone);
    const tallest = new Map();
    for (const box of boxes) tallest.set(box.column, (tallest.get(box.column) || 0) + 1);
    if (keys === columns || [...tallest.values()].every((count) => count <= ROWS)) return { per, ...arrange(boxes, needs) };
  }
  return { per, boxes: [], links: [] };
}

function boxesOf(keys, columns, alone) {
  const groups = new Map();
  keys.forEach((key, number) => {
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(number);
  });
  return [...groups.values()].flatMap((numbers) => (numbers.length > alone ? [numbers] : numbers.map((number) => [number])))
    .map((numbers) => ({ column: columns[numbers[0]], numbers, row: 0 }));
}

/** Gives each box its row: near to the boxes that it needs, so that few links cross. */
function arrange(boxes, needs) {
  const boxOf = [];
  boxes.forEach((box, index) => { for (const number of box.numbers) boxOf[number] = index; });
  const sources = boxes.map(() => new Set());
  needs.forEach((some, number) => { for (const source of some) if (boxOf[source] !== boxOf[number]) sources[boxOf[number]].add(boxOf[source]); });
  const columns = new Map();
  boxes.forEach((box, index) => columns.set(box.column, [...(columns.get(box.column) || []), index]));
  for (const column of [...columns.keys()].sort((a, b) => a - b)) {
    const list = columns.get(column);
    const wanted = new Map(list.map((index, place) => {
      const rows = [...sources[index]].filter((source) => boxes[source].column < column).map((source) => boxes[source].row / columns.get(boxes[source].column).length);
      return [index, rows.length ? rows.reduce((sum, row) => sum + row, 0) / rows.length : place / list.length];
    }));
    list.sort((a, b) => wanted.get(a) - wanted.get(b) || a - b).forEach((index, row) => { boxes[index].row = row; });
  }
  return { boxes, links: sources.flatMap((some, target) => [...some].map((source) => [source, target])) };
}
