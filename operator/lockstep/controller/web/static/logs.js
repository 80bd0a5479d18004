// The log of one rank as it is written, and beside it what the operator knows of that rank.

import { fetched, streamed } from "./api.js";
import { badge, h, runLink, section, show } from "./dom.js";
import { count, plural } from "./format.js";

const MOST_LINES = 2000;
const MOST_CHARACTERS = 4000; // of a line
const DRAW_MILLISECONDS = 250;
const AGAIN_SECONDS = 5; // twice as long each time …
const MOST_AGAIN_SECONDS = 30; // … up to this, until it could be read for as long
const CUT_AFTER_SECONDS = 280; // the operator ends a stream then, and it is asked for again

let view = null;

export function draw(root, body, first) {
  if (first || !view || !root.contains(view.text)) begin(root, body);
  show(view.title, h("h1", {}, `Log of rank ${body.rank}`), runLink(body), badge(body.state), body.reason !== body.state && h("span", {}, body.reason));
  view.rank.max = body.world - 1; // of an elastic run there are more or fewer at times
  view.world.textContent = `of ${plural(body.world, "rank")}`;
  const { node, phase, step, problem } = body;
  const facts = [["Node", node], ["Pod", body.pod], ["Phase", phase], ["Step", step === null ? "" : count(step)], ["Attempt", body.attempt || ""], ["Trouble", problem]].filter(([, value]) => value);
  show(view.facts, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  show(view.aside, stacks(body));
  if (!body.mayRead) return say("You may not get pods/log in this namespace; ask for the role view there.", true);
  view.ended = body.ended;
  const told = [phase, body.state, body.attempt, body.ended].join();
  if (view.told !== told) view.wake(); // it may be there now, or have its end
  view.told = told;
}

// The rank was heard of: its log is followed, unless that is done already or nobody looks.
export function heed(body) {
  if (!view || !body.mayRead || document.visibilityState === "hidden") return;
  if (view.pod === body.pod && (body.ended || !view.over)) return;
  view.over = false;
  view.pod = body.pod;
  view.abort?.abort();
  view.abort = new AbortController();
  void follow(view, `${runPath(body)}/ranks/${body.rank}/log`, view.abort.signal);
}

// Nobody reads, and a viewer may follow few logs at once; or there is no such run any more.
export function rest() {
  if (!view || view.over) return;
  view.abort?.abort();
  view.pod = "";
  say("", false);
}

export function leave() {
  view?.abort?.abort();
  clearTimeout(view?.timer);
  view = null;
}

function runPath({ namespace, name }) {
  return `runs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
}

function begin(root, body) {
  leave();
  const text = h("pre", { class: "log", tabindex: 0, "aria-label": `Log of rank ${body.rank}` });
  const filter = h("input", { type: "search", placeholder: "Filter lines  ( / )", "aria-label": "Filter lines", oninput: () => later(0) });
  const to = (rank) => {
    location.hash = `#/logs/${encodeURIComponent(body.namespace)}/${encodeURIComponent(body.name)}/${rank}`;
  };
  const rank = h("input", { type: "number", min: 0, required: true, value: body.rank, "aria-label": "Rank", onchange: () => rank.validity.valid && to(rank.valueAsNumber) });
  view = { text, filter, lines: [], part: "", pod: "", dropped: 0, ended: false, over: false, timer: 0, abort: null, earlier: new Map(), told: "", wake: () => {}, title: h("div", { class: "title" }), facts: h("dl", { class: "facts" }), aside: h("div", {}), said: h("p", { class: "hint", role: "status" }) };
  view.again = h("button", { type: "button", class: "small", hidden: true, onclick: () => view?.wake() }, "Ask now");
  Object.assign(view, { rank, world: h("span", { class: "hint" }) });
  const tools = h("div", { class: "tools deeds" }, h("label", {}, "Rank ", rank), view.world, filter);
  show(root, view.title, view.facts, tools, view.said, view.again, text, view.aside);
}

async function follow(own, from, signal) {
  let again = AGAIN_SECONDS;
  while (!signal.aborted) {
    const began = performance.now();
    let wait = 0;
    const pause = () => {
      if (performance.now() - began >= MOST_AGAIN_SECONDS * 1000) again = AGAIN_SECONDS;
      wait = again;
      again = Math.min(2 * again, MOST_AGAIN_SECONDS);
    };
    try {
      const reader = await streamed(from, signal);
      Object.assign(own, { lines: [], part: "", dropped: 0 });
      say("live", false);
      const decoder = new TextDecoder();
      for (let next = await reader.read(); !next.done; next = await reader.read()) take(own, decoder.decode(next.value, { stream: true }));
      if (own.ended) {
        own.over = true;
        later(0);
        return say("It has ended.", false);
      }
      if (performance.now() - began < CUT_AFTER_SECONDS * 1000) {
        say("Nothing more comes just now; it is asked for again.", false);
        pause();
      } else again = AGAIN_SECONDS;
    } catch (error) {
      if (signal.aborted) return;
      const words = error instanceof TypeError ? "It broke off, and is asked for again" : error.message ?? "no answer"; // of a stream
      say(`${words}.`, error.status !== 409);
      if (error.status === 403) return;
      if (error.status === 404 && own.ended) { // gone with its pod
        own.over = true;
        return;
      }
      pause();
      wait = Math.max(wait, error.retryAfter || 0);
    }
    if (wait && (await woken(own, wait, signal))) again = AGAIN_SECONDS;
  }
}

// Whether somebody asks, or there is news of the rank, before so many seconds are over.
async function woken(own, seconds, signal) {
  own.again.hidden = false;
  const early = await new Promise((done) => {
    own.wake = () => done(true);
    signal.addEventListener("abort", () => done(false), { once: true });
    setTimeout(() => done(false), seconds * 1000);
  });
  own.wake = () => {};
  own.again.hidden = true;
  return early;
}

function take(own, text) {
  if (own !== view) return;
  const lines = (own.part + text).split("\n");
  own.part = lines.pop().slice(-MOST_CHARACTERS);
  own.lines.push(...lines.map(clean));
  if (own.lines.length > MOST_LINES) own.dropped += own.lines.splice(0, own.lines.length - MOST_LINES).length;
  later(DRAW_MILLISECONDS);
}

// Colours of terminals, what else controls them, and reversed text say nothing here; of a line that is written over
// the last is meant.
function clean(line) {
  const plain = line.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/\r+$/, "").replace(/^.*\r/, "");
  return plain.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g, "").slice(0, MOST_CHARACTERS);
}

function later(milliseconds) {
  const own = view;
  if (!own || (own.timer && milliseconds)) return;
  clearTimeout(own.timer);
  own.timer = setTimeout(() => {
    own.timer = 0;
    const atEnd = own.text.scrollTop + own.text.clientHeight >= own.text.scrollHeight - 8;
    const wanted = own.filter.value.trim().toLowerCase();
    const all = own.part ? [...own.lines, clean(own.part)] : own.lines;
    const shown = wanted ? all.filter((line) => line.toLowerCase().includes(wanted)) : all;
    const cut = own.dropped ? `… ${plural(own.dropped, "earlier line")} not kept here: lockstep logs\n` : "";
    own.text.textContent = cut + shown.join("\n");
    if (atEnd) own.text.scrollTop = own.text.scrollHeight;
  }, milliseconds);
}

function say(words, wrong) {
  if (!view) return;
  view.said.className = wrong ? "notice" : "hint";
  if (view.said.textContent !== words) view.said.textContent = words;
}

function stacks(body) {
  if (!body.stack && !body.hangs.length) return null;
  return section("Stacks", body.stack && h("pre", {}, body.stack), body.hangs.map((attempt) => earlier(body, attempt)));
}

// Of a hang that is over. They are asked for when somebody opens them, and once.
function earlier(body, attempt) {
  if (view.earlier.has(attempt)) return view.earlier.get(attempt);
  const place = h("div", {}, h("p", { class: "hint" }, "Loading …"));
  const details = h("details", { ontoggle: () => details.open && !details.dataset.asked && void open() }, h("summary", { "data-key": `stacks ${attempt}` }, `When attempt ${attempt} hung`), place);
  const open = async () => {
    details.dataset.asked = "yes";
    try {
      const { groups } = await fetched(`${runPath(body)}/stacks/${attempt}`);
      const none = h("p", { class: "hint" }, "What is kept of them cannot be read.");
      show(place, groups.length ? groups.map(({ ranks, text }) => [h("h3", {}, `${/[-,]/.test(ranks) ? "Ranks" : "Rank"} ${ranks}`), h("pre", {}, clean(text))]) : none);
    } catch (error) {
      delete details.dataset.asked; // to be tried again
      show(place, h("p", { class: "notice" }, `${error.message}.`));
    }
  };
  view.earlier.set(attempt, details);
  return details;
}
