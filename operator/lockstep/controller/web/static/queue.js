// Who waits, why, and until when; who holds nodes; who has ended of late.

import { now } from "./api.js";
import { arrayLink, badge, h, runLink, section, show, table } from "./dom.js";
import { ago, count, duration, figure, local, plural } from "./format.js";

const view = { body: null, list: null, filter: "" };

export function draw(root, body, first) {
  view.body = body;
  if (first || !root.contains(view.list)) {
    view.filter = "";
    view.list = h("div");
    const input = h("input", {
      type: "search", placeholder: "Filter runs  ( / )", "aria-label": "Filter runs", "data-key": "filter",
      oninput: () => {
        view.filter = input.value.trim().toLowerCase();
        list();
      },
    });
    show(root, h("h1", { class: "sr" }, "Queue"), h("div", { class: "tools" }, input), view.list);
  }
  list();
}

function fits(row) {
  return `${row.namespace}/${row.name} ${row.array ?? ""} ${row.reason} ${row.queue}`.toLowerCase().includes(view.filter);
}

function list() {
  const { body } = view;
  const waiting = body.queues.map((queue) => queueSection(queue)).filter(Boolean);
  const parts = [
    ...waiting,
    rows("Hold nodes", body.holding, body.more.holding, held, HELD),
    rows("Arrays", body.arrays, body.more.arrays, array, ARRAYS),
    rows("Suspended", body.suspended, body.more.suspended, held, HELD),
    rows("Ended recently", body.finished, body.more.finished, ended, ENDED),
  ].filter(Boolean);
  const nothing = view.filter ? "No run that is listed fits the filter." : "No run that you may see waits, runs or has ended.";
  const left = Object.values(body.more).reduce((sum, more) => sum + more, 0) + body.queues.reduce((sum, queue) => sum + queue.more, 0);
  const unlisted = view.filter && left > 0 && h("p", { class: "hint" }, `The filter looks at what is listed; ${count(left)} more are not.`);
  show(view.list, parts.length ? parts : h("p", { class: "hint" }, nothing), unlisted);
}

const WAITING = [["#", "num"], ["Run", ""], ["Nodes", "num"], ["Why it waits", "wide"], ["Expected start", ""], ["Behind", ""], ["Priority", "num"]];

function queueSection(queue) {
  const shown = queue.waiting.filter((row) => (row.foreign ? !view.filter : fits(row)));
  if (view.filter && !shown.length) return null;
  const admits = queue.status?.conditions?.find((condition) => condition.type === "Active");
  const facts = [
    queue.backend === "Kueue" && "admitted by Kueue",
    admits?.status === "False" && `${admits.reason}: ${admits.message}`,
    !queue.exists && "there is no such queue",
    queue.status && `${plural(queue.status.nodesInUse ?? 0, "node")} in use by ${plural(queue.status.running ?? 0, "run")}`,
    queue.status?.usage?.length && usage(queue),
  ].filter(Boolean);
  const more = [
    queue.hidden && `${plural(queue.hidden, "run")} of other namespaces ${queue.hidden === 1 ? "waits" : "wait"} here as well.`,
    queue.more && `${count(queue.more)} more are not listed.`,
  ].filter(Boolean);
  return section(
    `Queue ${queue.name}`,
    facts.length > 0 && h("p", { class: "hint" }, facts.join("; ")),
    shown.length ? table(WAITING, shown.map(waits), `Runs that wait in queue ${queue.name}`)
      : h("p", { class: "hint" }, queue.hidden ? "No run of yours waits." : "Nobody waits."),
    more.length > 0 && h("p", { class: "hint" }, more.join(" ")),
  );
}

function usage(queue) {
  const own = Object.fromEntries((queue.quotas ?? []).map((quota) => [quota.gpuType, quota.nominalNodes]));
  return queue.status.usage
    .map((used) => `${used.gpuType} ${used.nodes ?? 0}${own[used.gpuType] === undefined ? "" : ` of ${own[used.gpuType]}`}${used.borrowed ? `, ${used.borrowed} borrowed` : ""}`)
    .join(", ");
}

function waits(row) {
  if (row.foreign) {
    return { kind: "foreign", cells: [row.position || "", h("span", { class: "mono" }, row.foreign), "", "a run of another namespace", "", "", ""] };
  }
  const points = Object.entries(row.factors ?? {}).map(([name, points]) => `${name} ${points}`).join(", ");
  return {
    kind: "",
    cells: [
      row.position || "",
      row.array ? arrayLink(row.namespace, row.name, `${row.namespace}/${row.array}`) : runLink(row),
      row.nodes.replace(/^0\//, ""),
      [h("b", {}, row.reason), row.gloss ? `: ${row.gloss}` : "", row.message && h("div", { class: "hint" }, row.message)],
      row.start === null || row.start === undefined ? (row.position ? "not known" : "")
        : [start(row.start), row.assumption && h("div", { class: "hint" }, `if ${row.assumption}`)],
      (row.blockedBy ?? []).map((name) => h("div", { class: "mono" }, name)),
      h("span", { title: points || null }, row.priority === null || row.priority === undefined ? "" : count(row.priority)),
    ],
  };
}

function start(moment) {
  const left = moment - now();
  return left > 0 ? [h("b", {}, `in ${duration(left)}`), ` (${local(moment)})`] : "now";
}

const HELD = [["Run", ""], ["State", ""], ["Nodes", "num"], ["Step", "num"], ["Loss", "num"], ["Last step", ""], ["Attempt", "num"], ["Queue", ""], ["Age", "num"]];
const ENDED = [["Run", ""], ["State", ""], ["Ended", ""], ["How", "wide"], ["Step", "num"], ["Attempt", "num"], ["Queue", ""]];

function rows(title, all, more, made, columns) {
  const shown = all.filter(fits);
  if (!shown.length) return null;
  return section(title, table(columns, shown.map(made), title), more > 0 && h("p", { class: "hint" }, `${count(more)} more are not listed.`));
}

function held(row) {
  const stopped = row.state !== "Running" && row.reason;
  return {
    kind: "",
    cells: [
      runLink(row), [badge(row.state), stopped && h("span", { class: "hint" }, ` ${row.reason}`)], row.nodes, row.step, figure(row.loss),
      ago(row.progressed, now()), row.attempt || "", row.queue, duration(now() - row.created),
    ],
  };
}

const ARRAYS = [["Array", ""], ["State", ""], ["Done", "num"], ["Running", "num"], ["Waiting", "num"], ["Failed", "num"], ["At most", "num"], ["Why", "wide"], ["Queue", ""], ["Age", "num"]];

function array(row) {
  return {
    kind: "",
    cells: [
      arrayLink(row.namespace, row.name, `${row.namespace}/${row.name}`), badge(row.state), row.done, count(row.counts.running),
      count(row.counts.pending), count(row.counts.failed), row.width === null ? "" : count(row.width),
      [row.reason, row.message && h("div", { class: "hint" }, row.message)], row.queue, duration(now() - row.created),
    ],
  };
}

function ended(row) {
  return { kind: "", cells: [runLink(row), badge(row.state), ago(row.ended, now()), [row.reason, row.message && h("div", { class: "hint" }, row.message)], row.step, row.attempt || "", row.queue] };
}
