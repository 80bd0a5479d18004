// The frame: who looks, which page, and how fresh it is.

import { Refusal, Unanswered, ask, fetched, now, server, token } from "./api.js";
import { h, show } from "./dom.js";
import { duration } from "./format.js";
import * as array from "./array.js";
import * as compare from "./compare.js";
import * as deeds from "./deeds.js";
import * as fleet from "./fleet.js";
import * as logs from "./logs.js";
import * as queue from "./queue.js";
import * as run from "./run.js";

const POLL_SECONDS = 5;
const AGES_SECONDS = 30; // after which what was so long ago is said anew, though nothing else has changed
const HELD = "not drawn anew while text is selected";
const main = document.getElementById("main");
const state = { page: null, heardAt: 0, problem: "", drawnAt: 0, news: false, held: false, generation: 0, timer: 0, abort: null };

// A page: what it asks, and how it is drawn. `draw` gets the answer, the element to draw in, and whether it is the
// first time; `ages`: it tells how long ago something was; `holds`: it is drawn in whole, and so not while text is selected;
// `heed` is told of every answer, `rest` that nobody looks or there is no such thing, `leave` that another page follows.
function pageOf(hash) {
  const [name, ...rest] = hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (name === "queue") return { key: "queue", title: "Queue", path: "queues", draw: queue.draw, ages: true, holds: true };
  if (name === "runs" && rest.length === 2) {
    const path = `runs/${rest.map(encodeURIComponent).join("/")}`;
    return { key: "run", title: `${rest[1]} (${rest[0]})`, path, draw: run.draw, heed: deeds.heed, leave: deeds.leave, ages: true, holds: true };
  }
  if (name === "arrays" && rest.length === 2) {
    const path = `arrays/${rest.map(encodeURIComponent).join("/")}`;
    return { key: "array", title: `${rest[1]} (${rest[0]})`, path, draw: array.draw, ages: true, holds: true };
  }
  if (name === "logs" && rest.length === 3) {
    const path = `runs/${rest.slice(0, 2).map(encodeURIComponent).join("/")}/ranks/${encodeURIComponent(rest[2])}`;
    return { key: "logs", title: `Log of ${rest[1]} (${rest[0]})`, path, draw: logs.draw, heed: logs.heed, rest: logs.rest, leave: logs.leave };
  }
  if (name === "compare" && rest.length) {
    const path = `compare?${new URLSearchParams(rest.join("/").split(",").map((run) => ["run", run]))}`;
    return { key: "compare", title: "Compare", path, draw: compare.draw, holds: true };
  }
  return { key: "fleet", title: "Fleet", path: "fleet", draw: fleet.draw };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function go() {
  const handed = takeTokenFromAddress();
  if (handed) return choose(handed);
  state.page?.leave?.();
  state.page = pageOf(location.hash);
  state.generation += 1;
  state.heardAt = 0;
  state.problem = "";
  state.drawnAt = 0;
  state.held = false;
  document.title = `${state.page.title} · Lockstep`;
  drawNavigation();
  show(main, h("p", { class: "hint" }, "Loading …"));
  main.dataset.ready = "";
  void poll(state.generation);
}

// `lockstep ui` hands the token over behind the #, which no server ever sees; nor does the history keep it. The token is
// returned where this tab has another already: anybody can make a link that signs one in as somebody else.
function takeTokenFromAddress() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", "#/fleet");
  const handed = decoded(found[1]);
  if (token.get() && token.get() !== handed) return handed;
  token.keep(handed);
  return "";
}

// Nothing is asked with either token until somebody has chosen.
function choose(handed) {
  halt();
  const chosen = (text) => {
    if (text) {
      token.forget();
      token.keep(text);
      show(document.getElementById("who"));
    }
    go();
  };
  const stay = h("button", { type: "button", "data-choice": "stay", onclick: () => chosen("") }, "Stay as I am");
  show(
    main,
    h("div", { class: "signin" },
      h("h1", {}, "Sign in as somebody else?"),
      h("p", {}, "This address brings another token than this tab has. Take it if you have opened it yourself, as by lockstep ui; by a link of others you would act as who made it."),
      stay,
      h("button", { type: "button", "data-choice": "use", onclick: () => chosen(handed) }, "Take the other token"),
    ),
  );
  show(document.getElementById("freshness"));
  main.dataset.ready = "choice";
  stay.focus();
}

// The page that is shown ends; what is under way for it is neither drawn nor kept.
function halt() {
  clearTimeout(state.timer);
  state.generation += 1;
  state.abort?.abort();
  state.page?.leave?.();
  deeds.forget();
}

async function poll(generation) {
  clearTimeout(state.timer);
  state.abort?.abort();
  state.abort = new AbortController();
  let wait = POLL_SECONDS;
  try {
    const { body, changed } = await ask(state.page.path, state.abort.signal);
    if (generation !== state.generation) return;
    state.heardAt = now();
    state.problem = "";
    drawPage(body, changed);
    state.page.heed?.(body);
    main.dataset.ready = state.page.key;
    void drawWho();
  } catch (error) {
    if (generation !== state.generation || error.name === "AbortError") return;
    if (error instanceof Refusal && error.status === 401) return signIn(token.get() ? error.message : "");
    if (error.status === 404) state.page.rest?.();
    if (!(error instanceof Refusal || error instanceof Unanswered)) console.error(error); // a defect of this page
    state.problem = error instanceof Refusal ? error.message
      : error instanceof Unanswered ? "no answer from the operator" : "this page cannot show the answer, which is a defect of it";
    wait = Math.max(POLL_SECONDS, error.retryAfter || 0);
    if (!state.heardAt) show(main, h("p", { class: "notice", role: "alert" }, `${state.problem}.`));
  }
  drawFreshness();
  if (document.visibilityState === "visible") state.timer = setTimeout(() => poll(generation), wait * 1000);
}

function drawPage(body, changed) {
  const first = !state.drawnAt;
  const aged = state.page.ages && performance.now() - state.drawnAt >= AGES_SECONDS * 1000;
  state.news ||= first || changed;
  state.held = !first && state.news && Boolean(state.page.holds) && selected();
  if (state.held || (!state.news && (!aged || selected()))) return;
  state.news = false;
  state.drawnAt = performance.now();
  state.page.draw(main, body, first);
}

// Somebody is about to copy what stands here.
function selected() {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(main, true);
}

function signIn(problem) {
  halt();
  const input = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const enter = (event) => {
    event.preventDefault();
    token.keep(input.value.trim());
    go();
  };
  show(
    main,
    h("form", { class: "signin", onsubmit: enter },
      h("h1", {}, "Sign in with a token of this cluster"),
      h("p", { class: "hint" }, "You see what this token may get with kubectl. It stays in this tab and is gone when you close it."),
      h("label", { for: "token" }, "Bearer token"),
      input,
      problem && h("p", { class: "notice", role: "alert" }, `${problem}.`),
      h("button", { type: "submit" }, "Sign in"),
      h("p", { class: "hint" }, "A token that opens this page and nothing else:"),
      h("pre", {}, "kubectl create token ACCOUNT --audience lockstep-web"),
    ),
  );
  show(document.getElementById("who"));
  show(document.getElementById("freshness"));
  main.dataset.ready = "signin";
  input.focus();
}

function signOut() {
  token.forget();
  signIn("");
}

function drawNavigation() {
  const links = [["fleet", "Fleet"], ["queue", "Queue"]].map(([key, title]) =>
    h("a", { href: `#/${key}`, "aria-current": state.page.key === key ? "page" : null, "data-key": key }, title),
  );
  if (["run", "array", "logs", "compare"].includes(state.page.key)) links.push(h("a", { href: location.hash, "aria-current": "page" }, state.page.title));
  show(document.getElementById("nav"), links);
}

// Once, after the first answer: as whom the API server knows this token.
async function drawWho() {
  const who = document.getElementById("who");
  if (!who.hasChildNodes()) {
    show(who, h("span", { class: "name" }), token.get() && h("button", { type: "button", onclick: signOut }, "Sign out"));
  }
  const name = who.firstChild; // that of this viewer, also where somebody else has come once it is known
  if (name.dataset.asked) return;
  name.dataset.asked = "yes";
  try {
    name.textContent = (await fetched("me")).name;
  } catch {
    delete name.dataset.asked; // with the next answer again; the page itself says what is wrong
  }
}

function drawFreshness() {
  const role = server.role === "Standby" ? "a standby answers, which hears no workers; " : "";
  const age = state.heardAt ? now() - state.heardAt : 0;
  const old = state.heardAt && age > 3 * POLL_SECONDS ? `as of ${duration(age)} ago; ` : "";
  const text = state.problem ? `${old}${state.problem}` : `${role}${old}${state.held ? HELD : state.heardAt ? "live" : ""}`;
  const place = document.getElementById("freshness");
  place.className = state.problem || old || state.held ? "stale" : "";
  if (place.textContent !== text) place.textContent = text;
}

addEventListener("hashchange", () => {
  if (location.hash === "#main") return; // the link that skips the header
  go();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") state.page?.rest?.();
  else if (!["signin", "choice"].includes(main.dataset.ready)) void poll(state.generation);
});
addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "/" && !typing) {
    document.querySelector("input[type=search]")?.focus();
    event.preventDefault();
  }
});
go();
