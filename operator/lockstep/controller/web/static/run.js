// One run on a page: how it is in words, then what that rests on.

import { now, server } from "./api.js";
import { ranks, stacked, timeline } from "./charts.js";
import { bar } from "./deeds.js";
import { arrayLink, badge, h, runLink, section, show, table } from "./dom.js";
import { ago, allDone, bytes, count, duration, figure, local, plural, seconds } from "./format.js";
import { curves, lossOf } from "./losses.js";

export function draw(root, body) {
  show(
    root,
    h("div", { class: "title" }, h("h1", {}, body.name), h("span", { class: "hint" }, body.namespace), badge(body.state),
      body.reason !== body.state && h("span", {}, body.reason)),
    bar(body),
    h("div", { class: "sentences" }, body.sentences.map((words) => h("p", { class: words.startsWith(" ") ? "in" : null }, words))),
    facts(body),
    h("div", { class: "pair" }, h("div", {}, attempts(body), checkpoints(body)), h("div", {}, goodput(body), lossSection(body), rankSection(body))),
    h("div", { class: "pair" }, conditions(body), events(body)),
  );
}

function facts(body) {
  const { progress, goodput, totals, measured } = body;
  const all = [
    ["Step", progress.totalSteps ? `${count(progress.step ?? 0)} of ${count(progress.totalSteps)}` : progress.step && count(progress.step)],
    ["Loss", progress.loss && figure(progress.loss)],
    ["Last step", ago(progress.time, now())],
    ["Pace", body.pace || (measured.stepSeconds && rate(measured.stepSeconds))],
    ["All steps done", allDone(body)],
    ["Nodes", body.nodes && `${body.nodes}${body.spares ? `, spares ${body.spares}` : ""}`],
    ["GPUs", body.gpusPerNode ? `${[body.gpusPerNode, body.gpuType].filter(Boolean).join(" ")} a node` : ""],
    ["Attempt", body.attempt || ""],
    ["Failures", goodput.failures],
    ["Effective time", goodput.ettr],
    ["Goodput", goodput.goodput],
    ["MFU", goodput.mfu],
    ["Time to recover", goodput.mttrP50 && `${duration(goodput.mttrP50)}, at worst ${duration(goodput.mttrP95 ?? 0)}`],
    ["Nodes replaced", totals.nodesReplaced],
    ["GPU-hours", goodput.gpuHours],
    ["Queue", body.queue.name],
    ["Array", body.set && arrayLink(body.namespace, body.set, body.set)],
    ["Goes on from", another(body, body.before)],
    ["Gone on from by", another(body, body.after)],
    ["Made", ago(body.created, now())],
  ].filter(([, value]) => value);
  return h("dl", { class: "facts" }, all.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// One of its own name was deleted for it, and has no page.
function another({ namespace, name }, other) {
  return other && other !== name && runLink({ namespace, name: other }, other);
}

function rate(step) {
  return step > 1 ? `a step every ${seconds(step)}` : `${figure(1 / step)} steps/s`;
}

const ATTEMPTS = [["#", "num"], ["Began", ""], ["Lasted", "num"], ["From step", "num"], ["To step", "num"], ["Lost steps", "num"], ["Ended by", "wide"]];

function attempts(body) {
  if (!body.attempts.length) return section("Attempts", h("p", { class: "hint" }, "It has not started yet."));
  const list = [...body.attempts].reverse().map((attempt) => ({
    kind: "",
    cells: [
      attempt.number, ago(attempt.startedAt, now()), lasted(attempt),
      [count(attempt.resumeStep ?? 0), attempt.resumeTier && h("div", { class: "hint" }, attempt.resumeTier)],
      attempt.lastStep === undefined ? "" : count(attempt.lastStep), lost(attempt),
      attempt.cause
        ? [h("b", {}, attempt.cause), attempt.node && ` on ${attempt.node}`, attempt.action && `, then ${attempt.action}`, attempt.message && h("div", { class: "hint" }, attempt.message)]
        : "it goes on",
    ],
  }));
  const missing = body.attempts[0].number - 1;
  return section(
    "Attempts", timeline(body, now()), table(ATTEMPTS, list, "Attempts"),
    missing > 0 && h("p", { class: "hint" }, `${plural(missing, "earlier attempt")} not kept.`),
  );
}

function lasted(attempt) {
  if (!attempt.startedAt) return "never began";
  const end = attempt.endedAt ? Date.parse(attempt.endedAt) / 1000 : now();
  return duration(end - Date.parse(attempt.startedAt) / 1000);
}

// Of its own steps, those that are done again; their time is reckoned as if all of its steps were equally long.
function lost(attempt) {
  const { steps = null, seconds = null } = attempt.lost ?? {};
  if (!attempt.endedAt) return "";
  if (steps === null && seconds === null) return "not known";
  return [steps === null ? "all" : count(steps), seconds !== null && seconds > 0 && h("div", { class: "hint" }, `about ${duration(seconds)}`)];
}

function goodput(body) {
  return section("Where the time went", stacked(body.goodput.buckets ?? {}));
}

function lossSection(body) {
  if (!body.losses.step.length) {
    return section("Loss", h("p", { class: "hint" }, "No loss was reported since this operator began to watch it."));
  }
  return section("Loss", curves([lossOf(body.losses)], body.uid, "Loss"));
}

const SAVES = [["Tier", ""], ["Step", "num"], ["Verdict", ""], ["Why", "wide"], ["Size", "num"]];
const VERDICTS = { Valid: "good", Invalid: "bad", Unknown: "warn" };

function checkpoints(body) {
  const { checkpoints: all } = body;
  if (!all.tiers) return section("Checkpoints", h("p", { class: "hint" }, "None: a restart begins at step 0."));
  const found = all.found.length ? all.found : all.latest.map((saved) => ({ ...saved, verdict: "Valid", reason: foundValid(saved) }));
  const bad = new Map(all.quarantined.map((entry) => [`${entry.tier} ${entry.step}`, entry.reason]));
  const list = found.map((save) => {
    const quarantined = bad.get(`${save.tier} ${save.step}`);
    const verdict = quarantined ? "Quarantined" : save.verdict;
    const resumed = all.resume && all.resume.tier === save.tier && all.resume.step === save.step;
    return {
      kind: "",
      cells: [
        save.tier, count(save.step), h("span", { class: `badge ${VERDICTS[verdict] ?? "bad"}` }, verdict),
        [quarantined ?? save.reason ?? "", resumed && h("span", { class: "hint" }, " this attempt began here"), h("div", { class: "hint mono" }, save.path), save.format && h("div", { class: "hint" }, save.format)],
        bytes(save.bytes),
      ],
    };
  });
  for (const save of all.archived) {
    list.push({ kind: "", cells: ["archive", count(save.step), h("span", { class: "badge good" }, "Published"), ago(save.time, now()), bytes(save.bytes)] });
  }
  const passed = all.rejected.map((entry) => h("li", {}, `step ${count(entry.step)} (${entry.tier}): ${entry.reason}`));
  return section(
    "Checkpoints",
    list.length ? table(SAVES, list, "Checkpoints") : h("p", { class: "hint" }, "None was seen yet."),
    [seen(all.observed), plan(all)].filter(Boolean).map((words) => h("p", { class: "hint" }, words)),
    all.archiveMessage && h("p", { class: "notice" }, `Archive: ${all.archiveMessage}`),
    passed.length > 0 && [h("h3", {}, "Passed over at the last start"), h("ul", {}, passed)],
  );
}

function foundValid(saved) {
  return `complete${saved.time ? ` ${ago(saved.time, now())}` : ""}, and valid on all ranks when they last looked; no worker looks now`;
}

// What was seen is told as that, and what is only asked for as a plan.
function seen({ tiers = [], block = 0, persist = 0 }) {
  const often = tiers.map((each) => `${each.tier} saved every ${seconds(each.interval)}, by the last ${each.count} saves of this attempt`);
  const cost = block > 0 && `the last save stopped training for ${seconds(block)}${persist > 0 ? ` and was on disk after ${seconds(persist)}` : ""}`;
  const words = [...often, cost].filter(Boolean).join("; ");
  return words && `Seen: ${words}.`;
}

function plan({ cadence, observed }) {
  if (!cadence.interval) return "";
  const heeded = observed.listens === false ? ", though no process of it asks when to save" : "";
  return `Plan${heeded}: a save every ${duration(cadence.interval)}${cadence.why ? `, as ${cadence.why}` : ""}.`;
}

const MOST_RANKS = 12;
const RANKS = [["Rank", "num"], ["Node", ""], ["Step", "num"], ["Phase", ""], ["Remark", "wide"]];

function rankSection(body) {
  const { ranks: all } = body;
  // While an attempt runs, some of its ranks may have ended already.
  const over = body.finished || (body.exits.attempt && body.attempts.at(-1)?.endedAt);
  if (over && !all.phase.some(Boolean)) return lastKnown(body);
  if (!all.node.length) return null;
  if (!all.phase.some(Boolean)) {
    const why = server.role === "Standby" ? "A standby answers; workers talk to the leader alone." : "No worker was heard of yet.";
    return section("Ranks", h("p", { class: "hint" }, why));
  }
  const steps = all.step.filter((step) => step !== null);
  const most = steps.length ? Math.max(...steps) : 0;
  const odd = all.node.map((_, rank) => ({ rank, remark: remark(all, rank, most) })).filter(({ remark }) => remark);
  const range = steps.length ? `; steps ${count(Math.min(...steps))} to ${count(most)}` : "";
  const list = odd.slice(0, MOST_RANKS).map(({ rank, remark }) => ({
    kind: "",
    cells: [rank, all.node[rank], all.step[rank] === null ? "" : count(all.step[rank]), all.phase[rank] || "not heard of", remark],
  }));
  return section(
    "Ranks",
    h("p", { class: "hint" }, `${plural(all.node.length, "rank")}${range}; ${odd.length ? `${count(odd.length)} to look at` : "all alike"}.`),
    ranks(all, most),
    list.length > 0 && table(RANKS, list, "Ranks to look at"),
    odd.length > MOST_RANKS && h("p", { class: "hint" }, `${count(odd.length - MOST_RANKS)} more are not listed.`),
  );
}

// Workers are gone with their pods: what was written of them is what there is.
function lastKnown({ exits, attempts, finished }) {
  const last = attempts.at(-1);
  if (!last) return finished ? section("Ranks", h("p", { class: "hint" }, "It has ended, and no rank of it was ever started.")) : null;
  const ofLast = exits.attempt === last.number ? exits : {};
  const words = [
    `Last known, of attempt ${last.number}${last.nodes ? ` on ${plural(last.nodes, "node")}` : ""}${last.lastStep === undefined ? "" : `, which came to step ${count(last.lastStep)}`}.`,
    ofLast.succeeded && `With code 0 ended: ${ofLast.succeeded}.`,
    last.rank !== undefined && `First to fail was rank ${last.rank}${last.node ? ` on ${last.node}` : ""}${last.exitCode === undefined ? "" : `, with exit code ${last.exitCode}`}.`,
    ofLast.first && `First of them: ${ofLast.first}.`,
    last.victims && `Ended because of it: ${last.victims}.`,
  ].filter(Boolean);
  return section("Ranks", words.map((each) => h("p", {}, each)), last.stderr && [h("h3", {}, "The end of its stderr"), h("pre", {}, last.stderr)]);
}

function remark(all, rank, most) {
  const words = [];
  if (all.problem[rank]) words.push(all.problem[rank]);
  if (all.steps[rank]) words.push(all.steps[rank]);
  if (all.silent[rank] < 0) words.push("never heard of");
  else if (all.silent[rank] >= 30) words.push(`silent for ${duration(all.silent[rank])}`);
  if (all.step[rank] !== null && most - all.step[rank] > 1) words.push(`${count(most - all.step[rank])} steps behind`);
  return words.join("; ");
}

export function conditions(body) {
  const list = body.conditions.map((condition) => ({
    kind: "",
    cells: [condition.type, condition.status, condition.reason, ago(condition.lastTransitionTime, now()), condition.message ?? ""],
  }));
  return section("Conditions", table([["Type", ""], ["Status", ""], ["Reason", ""], ["Since", ""], ["Message", "wide"]], list, "Conditions"));
}

export function events(body) {
  if (!body.events.length) return section("Events", h("p", { class: "hint" }, "None since this operator leads; kubectl has older ones."));
  const list = body.events.map((event) => ({
    kind: event.type === "Warning" ? "warning" : "",
    cells: [h("span", { title: local(event.at) }, ago(event.at, now())), event.reason, `${event.note}${event.count > 1 ? ` (${event.count} times)` : ""}`],
  }));
  return section("Events", table([["When", ""], ["Reason", ""], ["What", "wide"]], list, "Events"));
}
