// Charts of a run. Each says in words or in a table beside it what it shows.

import { themed } from "./colours.js";
import { h, svg } from "./dom.js";
import { duration, local, percent, plural, unix } from "./format.js";

const BUCKETS = [
  ["productive", "training", "good"], ["saveBlock", "stopped for saves", "b3"], ["lostWork", "repeated or lost", "bad"],
  ["detect", "until seen", "b5"], ["restart", "restarting", "warn"], ["loading", "loading", "b6"], ["init", "first start", "b7"],
  ["provision", "pods and images", "b8"], ["queue", "waiting for nodes", "b9"], ["suspended", "suspended", "b10"], ["other", "other", "b11"],
];

// One bar, cut by size. What it shows is said in figures beside it.
export function shares(parts, label) {
  const whole = parts.reduce((sum, part) => sum + part.size, 0) || 1;
  let x = 0;
  const bar = svg("svg", { class: "bar", viewBox: "0 0 1000 24", preserveAspectRatio: "none", role: "img", "aria-label": label });
  for (const part of parts.filter((each) => each.size > 0)) {
    const wide = (1000 * part.size) / whole;
    bar.append(svg("rect", { x, y: 0, width: Math.max(wide - 1, 0.5), height: 24, class: part.kind }, svg("title", {}, part.words)));
    x += wide;
  }
  return bar;
}

function keyOf(kind, [top, tall] = [0, 1]) {
  return svg("svg", { class: "key", viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("rect", { y: 12 * top, width: 12, height: 12 * tall, class: kind }));
}

// One bar for the whole life of a run, and the same in figures.
export function stacked(buckets) {
  const parts = BUCKETS.map(([key, words, kind]) => ({ words, kind, seconds: buckets[key] ?? 0 })).filter((part) => part.seconds > 0);
  const whole = parts.reduce((sum, part) => sum + part.seconds, 0);
  if (!whole) return h("p", { class: "hint" }, "No time is accounted for yet.");
  const bar = shares(parts.map((part) => ({ ...part, size: part.seconds })), "Time by what it went into");
  const rows = parts.map((part) =>
    h("li", {}, keyOf(part.kind), h("span", { class: "grow" }, part.words), h("span", { class: "num" }, duration(part.seconds)), h("span", { class: "num share" }, percent(part.seconds / whole))),
  );
  return h("div", {}, bar, h("ul", { class: "legend two" }, rows));
}

// Where a part lies in the height of an attempt: what is lost is told from a start-up by more than its colour.
const BETWEEN = [0.36, 0.28];
const PLACES = { productive: [0, 1], lostWork: [0, 0.5], init: [0.5, 0.5], loading: [0.5, 0.5], detect: BETWEEN, restart: BETWEEN, provision: BETWEEN };
const ESTIMATED = new Set(["productive", "lostWork"]);

// Attempts from left to right, each shaded by what its time went to; between them the time without any. What status
// does not tell stays empty.
export function timeline(body, now) {
  const all = body.attempts.filter((attempt) => attempt.startedAt);
  if (!all.length) return null;
  const parts = all.flatMap((attempt) => (attempt.parts ?? []).map((part) => told(attempt, part, now)));
  const begun = Math.min(unix(all[0].startedAt), ...parts.map((part) => part.from));
  const from = all[0].number === 1 ? Math.min(body.created, begun) : begun;
  const to = body.finished && all.at(-1).endedAt ? Math.max(unix(all.at(-1).endedAt), ...parts.map((part) => part.to)) : now;
  const scale = (moment) => (1000 * (unix(moment) - from)) / Math.max(1, to - from);
  const chart = svg("svg", { class: "timeline", viewBox: "0 0 1000 34", preserveAspectRatio: "none", role: "img", "aria-label": `${plural(all.length, "attempt")} between ${local(from)} and ${local(to)}; the list below says what the time went to` });
  chart.append(svg("rect", { x: 0, y: 14, width: 1000, height: 6, class: "gap" }, svg("title", {}, "between attempts: waiting or stopped, as far as nothing else is shown")));
  for (const attempt of all) {
    const begin = scale(attempt.startedAt);
    const end = attempt.endedAt ? scale(attempt.endedAt) : 1000;
    chart.append(svg("rect", { x: begin, y: 6, width: Math.max(2, end - begin), height: 22, class: "attempt" }, svg("title", {}, `${named(attempt)}: what is empty is not known`)));
  }
  for (const { bucket, kind, from: begin, to: end, words } of parts) {
    const [top, tall] = PLACES[bucket];
    chart.append(svg("rect", { x: scale(begin), y: 6 + 22 * top, width: Math.max(1, scale(end) - scale(begin)), height: 22 * tall, class: kind, "data-bucket": bucket }, svg("title", {}, words)));
  }
  // As the account has it: an end that a rank caused is a failure.
  for (const attempt of all.filter((each) => each.endedAt && each.rank !== undefined)) {
    chart.append(svg("rect", { x: Math.max(0, scale(attempt.endedAt) - 2), y: 0, width: 3, height: 34, class: "fail" }, svg("title", {}, named(attempt))));
  }
  const shown = BUCKETS.filter(([bucket]) => parts.some((part) => part.bucket === bucket));
  return h("figure", {}, chart,
    h("figcaption", { class: "ends" }, h("span", {}, local(from)), h("span", {}, body.finished ? local(to) : "now")),
    h("ul", { class: "legend row" }, shown.map(([bucket, words, kind]) => h("li", {}, keyOf(kind, PLACES[bucket]), words)),
      h("li", { class: "hint" }, "box: an attempt; empty: not known; tall mark: a failure")),
    h("ul", { class: "sr", "aria-label": "What the time of attempts went to" }, parts.map((part) => h("li", {}, part.words))));
}

function named(attempt) {
  return `attempt ${attempt.number}${attempt.cause ? `: ${attempt.cause}` : ""}`;
}

// A part as it is drawn and said. Where steps of an attempt began to be in vain is reckoned from their number.
function told(attempt, { bucket, from, to }, now) {
  const [, words, kind] = BUCKETS.find(([name]) => name === bucket);
  const end = to ?? Math.max(from, now);
  const where = from < unix(attempt.startedAt) ? "before " : attempt.endedAt && from >= unix(attempt.endedAt) ? "after " : "";
  const about = to !== null && ESTIMATED.has(bucket) ? "about " : "";
  return { bucket, kind, from, to: end, words: `${where}attempt ${attempt.number}: ${words}, ${about}${duration(end - from)}${to === null ? " so far" : ""}` };
}

// A square for each rank, in rank order: full with the others, paler the further behind, hollow when not heard of.
export function ranks(all, most) {
  const size = all.node.length > 2048 ? 5 : all.node.length > 256 ? 9 : 14;
  const pitch = size + (size > 6 ? 2 : 1);
  const canvas = h("canvas", { class: "ranks", role: "img", "aria-label": "Ranks in order; those that stand out are in the table" });
  const paint = () => {
    const width = canvas.parentElement?.clientWidth;
    if (!width) return;
    const columns = Math.max(1, Math.floor(width / pitch));
    const tall = Math.ceil(all.node.length / columns) * pitch;
    const ratio = devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = tall * ratio;
    canvas.style.height = `${tall}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const theme = themed();
    all.node.forEach((_, rank) => {
      const [x, y] = [(rank % columns) * pitch, Math.floor(rank / columns) * pitch];
      const heard = all.silent[rank] >= 0 && all.silent[rank] < 30;
      const behind = all.step[rank] === null ? 0 : most - all.step[rank];
      pen.fillStyle = pen.strokeStyle = all.problem[rank] ? theme.bad : behind > 1 ? theme.warn : theme.accent;
      pen.lineWidth = 1.5;
      if (heard && all.phase[rank] === "Running") pen.fillRect(x, y, size, size);
      else pen.strokeRect(x + 1, y + 1, size - 2, size - 2);
    });
  };
  new ResizeObserver(paint).observe(canvas);
  queueMicrotask(paint);
  return h("div", {}, canvas);
}
