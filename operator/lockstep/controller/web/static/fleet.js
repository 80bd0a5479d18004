// The rack map. One canvas, however many nodes there are; beside it what it says in words.

import { drawNode, runColour, swatch, themed } from "./colours.js";
import { badge, h, runLink, section, show } from "./dom.js";
import { count, plural } from "./format.js";
import { arranged, at, neighbour } from "./racks.js";

const [NOBODY, SOMEBODY, OTHERS] = [-1, -2, -3];
const SPARE = -1;
const MEANINGS = {
  Suspect: "ranks of two runs or more failed here first within a day: others are preferred",
  Cordoned: "takes no new work",
  Draining: "its runs save and leave",
  Unhealthy: "a condition tells of broken hardware",
  NotReady: "Kubernetes does not hear of it",
};
const MOST_LISTED = 40;
const MOST_RUNS = 200;
const view = { body: null, plan: null, canvas: null, aside: null, chosen: -1, run: null, observer: null };

export function draw(root, body, first) {
  const before = view.body?.name[view.chosen];
  view.body = body;
  if (before) view.chosen = body.name.indexOf(before); // nodes come and go: the one that was chosen stays it
  if (first || !root.contains(view.canvas)) build(root);
  view.chosen = view.chosen < body.name.length ? view.chosen : -1;
  view.plan = null;
  paint();
  describe();
}

function build(root) {
  view.chosen = -1;
  view.run = null;
  view.canvas = h("canvas", {
    tabindex: 0, role: "application", id: "map", "data-key": "map",
    "aria-label": "Rack map. Arrow keys go from node to node, Enter opens the run.", "aria-describedby": "node",
    onpointermove: (event) => point(event), onpointerdown: (event) => point(event), ondblclick: open,
    onkeydown: move,
  });
  view.words = h("div", { class: "words" });
  view.node = h("div", { id: "node", class: "node", "aria-live": "polite" });
  view.totals = h("p", { class: "totals" });
  show(
    root,
    h("h1", { class: "sr" }, "Fleet"),
    h("div", { class: "fleet" },
      h("div", { class: "map" }, view.totals, view.canvas),
      h("aside", {}, view.node, view.words),
    ),
  );
  view.observer?.disconnect();
  view.observer = new ResizeObserver(() => {
    view.plan = null;
    paint();
  });
  view.observer.observe(view.canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").onchange = () => {
    paint();
    describe();
  };
}

function lookOf(index) {
  const { run, state, states, runs } = view.body;
  const holder = run[index];
  const look = { state: states[state[index]] };
  if (holder >= 0) {
    Object.assign(look, { fill: runColour(holder), ring: !trains(runs[holder]), number: String(holder + 1) });
  } else if (holder === SOMEBODY) look.fill = themed().busy;
  else if (holder === OTHERS) look.dots = true;
  return look;
}

function trains(run) {
  return run.state === "Running";
}

function paint() {
  const { canvas, body } = view;
  const width = canvas.parentElement.clientWidth;
  if (!width) return;
  const tall = Math.max(360, innerHeight - canvas.getBoundingClientRect().top - scrollY - 24);
  view.plan ??= arranged(body.groups, width, tall);
  const { plan } = view;
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(plan.height * ratio);
  canvas.style.height = `${plan.height}px`;
  const pen = canvas.getContext("2d");
  const theme = themed();
  pen.scale(ratio, ratio);
  pen.fillStyle = theme.muted;
  pen.textBaseline = "alphabetic";
  for (const label of plan.labels) {
    pen.font = `${label.strong ? "600 " : ""}11px system-ui, sans-serif`;
    pen.textAlign = "left";
    pen.fillText(label.text, label.x, label.y, label.width);
  }
  for (let i = 0; i < body.name.length; i++) {
    pen.globalAlpha = view.run === null || body.run[i] === view.run ? 1 : 0.16;
    drawNode(pen, plan.x[i], plan.y[i], plan.size, lookOf(i), theme);
  }
  pen.globalAlpha = 1;
  if (view.chosen >= 0) {
    pen.strokeStyle = theme.ink;
    pen.lineWidth = 2;
    pen.strokeRect(plan.x[view.chosen] - 1.5, plan.y[view.chosen] - 1.5, plan.size + 3, plan.size + 3);
  }
  canvas.dataset.nodes = body.name.length;
}

function point(event) {
  if (!view.plan) return;
  const box = view.canvas.getBoundingClientRect();
  choose(at(view.plan, event.clientX - box.left, event.clientY - box.top));
}

function move(event) {
  if (!view.plan) return;
  if (event.key === "Enter") return open();
  const next = neighbour(view.plan, view.chosen, event.key);
  if (next === null) return;
  event.preventDefault();
  choose(next);
}

function open() {
  const run = view.body.runs[view.body.run[view.chosen]];
  if (run) location.hash = runLink(run).getAttribute("href");
}

function choose(index) {
  if (index < 0 || index === view.chosen) return;
  view.chosen = index;
  paint();
  describeNode();
}

function placeOf(index) {
  let left = index;
  for (const group of view.body.groups) {
    if (left < group.count) return group.path.filter(Boolean).join(" / ");
    left -= group.count;
  }
  return "";
}

function describeNode() {
  const { body, chosen } = view;
  if (chosen < 0) {
    return show(view.node, h("p", { class: "hint" }, "Point at a node, or go there with the arrow keys."));
  }
  const holder = body.run[chosen];
  const run = body.runs[holder];
  const rank = body.rank[chosen];
  const state = body.states[body.state[chosen]];
  const who =
    run ? [runLink(run), rank >= 0 ? `, rank ${rank}` : rank === SPARE ? ", a spare" : ""]
    : holder === SOMEBODY ? ["a run that you may not see"]
    : holder === OTHERS ? ["pods that are no gang's"]
    : ["nobody"];
  const facts = [
    ["Node", h("b", {}, body.name[chosen] || "(name not shown to you)")],
    ["Place", placeOf(chosen)],
    ["GPUs", body.types[body.type[chosen]]],
    ["State", h("span", {}, state, MEANINGS[state] ? h("span", { class: "hint" }, `: ${MEANINGS[state]}`) : "")],
    ["Held by", h("span", {}, who)],
    ["Because", body.why[chosen]],
  ];
  const told = h("dl", {}, facts.filter(([, what]) => what).map(([name, what]) => [h("dt", {}, name), h("dd", {}, what)]));
  if (view.node.innerHTML !== told.outerHTML) show(view.node, told); // else it would be read aloud again and again
}

function tally(values) {
  const found = new Map();
  for (const value of values) found.set(value, (found.get(value) ?? 0) + 1);
  return found;
}

function describe() {
  const { body } = view;
  const theme = themed();
  const holders = tally(body.run);
  const states = tally(body.state);
  const ready = body.states.indexOf("Ready");
  const free = body.run.filter((holder, i) => holder === NOBODY && body.state[i] === ready).length;
  const held = body.run.filter((holder) => holder >= 0 || holder === SOMEBODY).length;
  show(
    view.totals,
    h("b", {}, plural(body.name.length, "node")), `  ${count(held)} held by runs, ${count(free)} free, `,
    `${count(body.name.length - (states.get(ready) ?? 0))} other than Ready`,
  );
  const emphasise = (index) => ({
    onmouseenter: () => highlight(index), onmouseleave: () => highlight(null),
    onfocusin: () => highlight(index), onfocusout: () => highlight(null),
  });
  const runs = body.runs.map((run, index) => ({ run, index })).sort((a, b) => b.run.nodes - a.run.nodes);
  const runRows = runs.slice(0, MOST_RUNS).map(({ run, index }) =>
    h("li", emphasise(index),
      swatch({ fill: runColour(index), ring: !trains(run), number: String(index + 1), state: "Ready" }, theme, 18),
      h("span", { class: "grow" }, runLink(run)), badge(run.state), h("span", { class: "num" }, count(run.nodes)),
    ),
  );
  const others = [
    [NOBODY, {}, "nobody"],
    [SOMEBODY, { fill: theme.busy }, "runs that you may not see"],
    [OTHERS, { dots: true }, "pods that are no gang's"],
  ].filter(([holder]) => holders.get(holder)).map(([holder, look, words]) =>
    h("li", emphasise(holder), swatch({ ...look, state: "Ready" }, theme, 18), h("span", { class: "grow hint" }, words),
      h("span", { class: "num" }, count(holders.get(holder)))),
  );
  const stateRows = Object.entries(MEANINGS).map(([state, meaning]) =>
    h("li", {}, swatch({ state }, theme, 18),
      h("span", { class: "grow" }, state, h("span", { class: "hint" }, `  ${meaning}`)),
      h("span", { class: "num" }, count(states.get(body.states.indexOf(state)) ?? 0))),
  );
  show(
    view.words,
    section("Held by", h("ul", { class: "legend" }, runRows, others),
      runs.length > MOST_RUNS && h("p", { class: "hint" }, `${count(runs.length - MOST_RUNS)} smaller runs are on the map and not listed.`)),
    section("Marks", h("ul", { class: "legend" },
      h("li", {}, swatch({ fill: theme.muted, state: "Ready" }, theme, 18), h("span", { class: "grow hint" }, "full: trains")),
      h("li", {}, swatch({ fill: theme.muted, ring: true, state: "Ready" }, theme, 18), h("span", { class: "grow hint" }, "ring: held, does not train now")),
      stateRows)),
    troubled(ready),
  );
  describeNode();
}

function troubled(ready) {
  const { body } = view;
  const found = [];
  body.state.forEach((state, i) => {
    if (state !== ready && body.name[i]) found.push(i);
  });
  if (!found.length) return null;
  const rows = found.slice(0, MOST_LISTED).map((i) =>
    h("li", {}, h("span", { class: "mono" }, body.name[i]), h("span", { class: "grow hint" },
      `${body.states[body.state[i]]}${body.why[i] ? `: ${body.why[i]}` : ""}`)),
  );
  const more = found.length - rows.length;
  return section("To look at", h("ul", { class: "legend" }, rows, more > 0 && h("li", { class: "hint" }, `and ${count(more)} more`)));
}

function highlight(index) {
  if (view.run === index) return;
  view.run = index;
  paint();
}
