// A few runs beside each other, by their addresses: loss and step rate in one figure each.

import { badge, h, runLink, section, show, table } from "./dom.js";
import { allDone, count, figure, plural } from "./format.js";
import { curves, lossOf, rateOf } from "./losses.js";

const MOST_RUNS = 4;
const RUNS = [["", ""], ["Run", ""], ["State", ""], ["Step", "num"], ["Loss", "num"], ["Steps/s", "num"], ["All steps done", ""], ["Nodes", "num"], ["Attempt", "num"], ["", ""]];
let list = null;

export function draw(root, body, first) {
  if (first || !root.contains(list)) begin(root, body);
  const all = names(body), key = body.runs.map((run) => run.uid).join(" ");
  const drawn = (make, what) => {
    const series = body.runs.map((run) => make(run.losses, name(run)));
    return section(what, series.some((each) => each.step.length) ? curves(series, `${what} ${key}`, what)
      : h("p", { class: "hint" }, "Nothing was reported since this operator began to watch them."));
  };
  const missing = body.missing.map((each) => h("p", { class: "hint" }, `${each.run}: ${each.message} `, without(each.run, all)));
  show(list, section("Runs", table(RUNS, body.runs.map((run, i) => row(run, i, all)), "Runs that are compared"), missing), drawn(lossOf, "Loss"), drawn(rateOf, "Step rate"));
}

function name(run) {
  return `${run.namespace}/${run.name}`;
}

// Of all that were asked for, also those that are not there or not to be seen.
function names(body) {
  return [...body.runs.map(name), ...body.missing.map((each) => each.run)];
}

function without(key, all) {
  const others = all.filter((each) => each !== key);
  return others.length > 0 && h("a", { href: addressOf(others), "data-key": `without ${key}` }, "leave out");
}

function addressOf(keys) {
  return `#/compare/${keys.map((key) => key.split("/").map(encodeURIComponent).join("/")).join(",")}`;
}

function row(run, index, all) {
  const { progress, measured } = run;
  return {
    kind: "",
    cells: [
      h("span", { class: `stroke s${index}`, "aria-hidden": "true" }), runLink(run), badge(run.state), progress.step ? count(progress.step) : "", figure(progress.loss),
      measured.stepSeconds ? figure(1 / measured.stepSeconds) : "", allDone(run), run.nodes, run.attempt || "",
      without(name(run), all),
    ],
  };
}

function begin(root, body) {
  const keys = names(body);
  const input = h("input", { placeholder: "namespace/name", "aria-label": "Run to compare with", pattern: "[a-z0-9\\-]+/[a-z0-9.\\-]+", required: true });
  const add = (event) => {
    event.preventDefault();
    location.hash = addressOf([...keys, input.value.trim()]);
  };
  list = h("div", { class: "compared" });
  const form = keys.length < MOST_RUNS && h("form", { class: "tools deeds", onsubmit: add }, input, h("button", { type: "submit" }, "Compare with"));
  show(root, h("div", { class: "title" }, h("h1", {}, `${plural(keys.length, "run")} compared`)), form, list);
}
