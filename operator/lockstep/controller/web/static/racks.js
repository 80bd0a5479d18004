// Where every node of the map is drawn: racks as blocks, side by side below the name of what they stand in.

const LARGEST = 22;
const SMALLEST = 4;
const LABEL = 15;
const MOST_ABREAST = 8;

// The largest squares with which `groups` ({path, count}, in order) fit `width` and, if possible, `height`. What racks
// stand in is drawn side by side where that takes less room.
export function arranged(groups, width, height) {
  const areas = within(groups);
  let best;
  for (let size = LARGEST; size >= SMALLEST; size -= size > 10 ? 2 : 1) {
    best = null;
    for (let abreast = 1; abreast <= Math.min(MOST_ABREAST, areas.length); abreast++) {
      const plan = laidOut(areas, width, size, abreast);
      if (!best || plan.height < best.height) best = plan;
    }
    if (best && best.height <= height) break;
  }
  return best ?? { size: LARGEST, pitch: LARGEST, x: [], y: [], labels: [], blocks: [], height: 0 };
}

// Racks by what they stand in, in order.
function within(groups) {
  const areas = [];
  for (const group of groups) {
    const name = group.path.slice(0, -1).filter(Boolean).join(" / ");
    if (areas.at(-1)?.name !== name) areas.push({ name, racks: [] });
    areas.at(-1).racks.push(group);
  }
  return areas;
}

function laidOut(areas, width, size, abreast) {
  const apart = size > 8 ? 12 : 6;
  const between = size > 8 ? 16 : 10;
  const wide = Math.floor((width - between * (abreast - 1)) / abreast);
  const plan = { size, pitch: size + (size > 8 ? 2 : 1), x: [], y: [], labels: [], blocks: [], height: 0 };
  let [y, tallest] = [0, 0];
  areas.forEach((area, index) => {
    const column = index % abreast;
    if (column === 0 && index > 0) [y, tallest] = [y + tallest + apart, 0];
    tallest = Math.max(tallest, placed(plan, area, column * (wide + between), y, wide, apart));
  });
  plan.height = y + tallest + 4;
  return plan;
}

// Draw one area with its corner at x0, y0; how tall it is.
function placed(plan, area, x0, y0, width, apart) {
  const { size, pitch } = plan;
  const named = size > 6;
  let [x, y, tallest] = [x0, y0, 0];
  if (area.name) {
    plan.labels.push({ text: area.name, x, y: y + 12, width, strong: true });
    y += 18;
  }
  for (const rack of area.racks) {
    const columns = Math.max(1, Math.ceil(Math.sqrt(rack.count)));
    const [wide, tall] = [columns * pitch, Math.ceil(rack.count / columns) * pitch + (named ? LABEL : 0)];
    if (x + wide > x0 + width && x > x0) [x, y, tallest] = [x0, y + tallest + apart, 0];
    const top = y + (named ? LABEL : 0);
    if (named) plan.labels.push({ text: rack.path.at(-1) || "elsewhere", x, y: y + 11, width: Math.max(wide, 24) });
    plan.blocks.push({ x, y: top, columns, count: rack.count, first: plan.x.length });
    for (let i = 0; i < rack.count; i++) {
      plan.x.push(x + (i % columns) * pitch);
      plan.y.push(top + Math.floor(i / columns) * pitch);
    }
    x += wide + apart;
    tallest = Math.max(tallest, tall);
  }
  return y + tallest - y0;
}

// The node at a point, -1 for none.
export function at(plan, x, y) {
  for (const block of plan.blocks) {
    const column = Math.floor((x - block.x) / plan.pitch);
    const row = Math.floor((y - block.y) / plan.pitch);
    if (column < 0 || row < 0 || column >= block.columns) continue;
    const index = row * block.columns + column;
    if (index < block.count) return block.first + index;
  }
  return -1;
}

// The node that a key leads to from `from`; null: it is no such key.
export function neighbour(plan, from, key) {
  const last = plan.x.length - 1;
  const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
  if (last < 0) return null;
  if (key === "Home") return 0;
  if (key === "End") return last;
  if (step) return from < 0 ? 0 : Math.min(last, Math.max(0, from + step));
  const down = { ArrowDown: 1, ArrowUp: -1 }[key];
  if (!down) return null;
  if (from < 0) return 0;
  let [best, distance] = [from, Infinity];
  for (let i = 0; i <= last; i++) {
    const off = (plan.y[i] - plan.y[from]) * down;
    if (off <= 0) continue;
    const far = off * 4 + Math.abs(plan.x[i] - plan.x[from]);
    if (far < distance) [best, distance] = [i, far];
  }
  return best;
}
