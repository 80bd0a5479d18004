// A few runs beside each other, by their addresses: loss and step rate in one figure each.

import { badge, h, runLink, section, show, table } from "./dom.js";
import { allDone, count, figure, plural } from "./format.js";
import { curves, lossOf, rateOf } from "./losses.js";

const MOST_RUNS = 4;
const RUNS = [["", ""], ["Run", ""], ["State", ""], ["Step", "num"], ["Loss", "num"], ["Steps/s", "num"], ["All steps done", ""], ["Nodes", "num"], ["Attempt", "num"], ["", ""]];
let list = null;

export function draw(root, body, first) {
  if (first || !root.contains(list)) begin(root, body);
  const key = body.runs.map((run) => run.uid).join(" ");
  const drawn = (make, what) => {
    const series = body.runs.map((run) => make(run.losses, name(run)));
    return section(what, series.some((each) => each.step.length) ? curves(series, `${what} ${key}`, what)
      : h("p", { class: "hint" }, "Nothing was reported since this operator began to watch them."));
  };
  show(list, section("Runs", table(RUNS, body.runs.map((run, i) => row(run, i, body.runs)), "Runs that are compared")), drawn(lossOf, "Loss"), drawn(rateOf, "Step rate"));
}

function name(run) {
  return `${run.namespace}/${run.name}`;
}

function addressOf(keys) {
  return `#/compare/${keys.map((key) => key.split("/").map(encodeURIComponent).join("/")).join(",")}`;
}

function row(run, index, all) {
  const { progress, measured } = run;
  const others = all.filter((each) => each !== run).map(name);
  return {
    kind: "",
    cells: [
      h("span", { class: `stroke s${index}`, "aria-hidden": "true" }), runLink(run), badge(run.state), progress.step ? count(progress.step) : "", figure(progress.loss),
      measured.stepSeconds ? figure(1 / measured.stepSeconds) : "", allDone(run), run.nodes, run.attempt || "",
      others.length > 0 && h("a", { href: addressOf(others), "data-key": `without ${name(run)}` }, "leave out"),
    ],
  };
}

function begin(root, body) {
  const keys = body.runs.map(name);
  const input = h("input", { placeholder: "namespace/name", "aria-label": "Run to compare with", pattern: "[a-z0-9\\-]+/[a-z0-9.\\-]+", required: true });
  const add = (event) => {
    event.preventDefault();
    location.hash = addressOf([...keys, input.value.trim()]);
  };
  list = h("div", { class: "compared" });
  const form = keys.length < MOST_RUNS && h("form", { class: "tools deeds", onsubmit: add }, input, h("button", { type: "submit" }, "Compare with"));
  show(root, h("div", { class: "title" }, h("h1", {}, `${plural(keys.length, "run")} compared`)), form, list);
}
