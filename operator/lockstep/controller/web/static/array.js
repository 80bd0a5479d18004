// One array on a page: what became of its indices, and the runs that there are.

import { now } from "./api.js";
import { shares } from "./charts.js";
import { badge, h, runLink, section, show, table } from "./dom.js";
import { ago, count, duration, figure } from "./format.js";
import { conditions, events } from "./run.js";

const KINDS = { succeeded: "good", failed: "bad", cancelled: "b9", running: "b3", pending: "b10", "not ended": "b10" };

export function draw(root, body) {
  show(
    root,
    h("div", { class: "title" }, h("h1", {}, body.name), h("span", { class: "hint" }, `${body.namespace}, array`), badge(body.state),
      body.reason !== body.state && h("span", {}, body.reason)),
    h("div", { class: "sentences" }, body.sentences.map((words) => h("p", {}, words))),
    facts(body),
    outcomes(body),
    going(body),
    ended(body),
    h("div", { class: "pair" }, conditions(body), events(body)),
  );
}

function facts(body) {
  const all = [
    ["Done", body.done],
    ["At most at once", body.width === null ? "" : String(body.width)],
    ["Comes after", body.after],
    ["Queue", body.queue],
    ["Made", ago(body.created, now())],
  ].filter(([, value]) => value);
  return h("dl", { class: "facts" }, all.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function outcomes(body) {
  if (!body.outcomes.length) return section("Indices", h("p", { class: "hint" }, "Its spec cannot be read."));
  const list = body.outcomes.map((each) => ({
    kind: "", cells: [each.outcome, count(each.count), h("span", { class: "mono" }, each.indices)],
  }));
  const parts = body.outcomes.map((each) => ({ words: each.outcome, kind: KINDS[each.outcome], size: each.count }));
  return section("Indices", shares(parts, "Indices by what became of them"), table([["Outcome", ""], ["Count", "num"], ["Indices", "wide"]], list, "Indices"));
}

const GOING = [["Run", ""], ["State", ""], ["Nodes", "num"], ["Step", "num"], ["Loss", "num"], ["Attempt", "num"], ["Age", "num"]];

function going(body) {
  if (!body.runs.length) return section("Runs", h("p", { class: "hint" }, "None that you may see goes on."));
  const list = body.runs.map((row) => ({
    kind: "",
    cells: [
      runLink(row, row.name), [badge(row.state), row.state !== "Running" && row.reason && h("span", { class: "hint" }, ` ${row.reason}`)],
      row.nodes, row.step, figure(row.loss), row.attempt || "", duration(now() - row.created),
    ],
  }));
  return section("Runs", table(GOING, list, "Runs that go on"), body.more.runs > 0 && h("p", { class: "hint" }, `${count(body.more.runs)} more are not listed.`));
}

function ended(body) {
  if (!body.finished.length) return null;
  const list = body.finished.map((row) => ({
    kind: "", cells: [runLink(row, row.name), badge(row.state), ago(row.ended, now()), [row.reason, row.message && h("div", { class: "hint" }, row.message)]],
  }));
  const more = body.more.finished;
  return section("Ended recently", table([["Run", ""], ["State", ""], ["Ended", ""], ["How", "wide"]], list, "Runs that have ended"), more > 0 && h("p", { class: "hint" }, `${count(more)} more are not listed.`));
}
