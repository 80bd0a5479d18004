// What may be done to a run, by whoever may: with the viewer's own token, and after it was said what it costs.

import { act, fetched } from "./api.js";
import { h, runLink, show } from "./dom.js";

const LOOK_AGAIN_SECONDS = 30;
const TITLES = { checkpoint: "Save now", suspend: "Suspend", resume: "Resume", cancel: "Cancel", retry: "Retry" };
const GONE = "That makes no sense for it now, or you may not do it any more.";
const known = { uid: "", state: "", due: 0, offer: null, said: "", wrong: false, made: "", asking: null };

// They stay while all around them is drawn anew: of a new status node screen readers do not read what it says.
const buttons = h("span", { class: "choices" });
const said = h("span", { role: "status", id: "deed-said" });
const place = h("div", { class: "deeds" }, buttons, said);

// Buttons for the run that is shown. They are there as soon as it is known what this viewer may.
export function bar(body) {
  if (known.uid !== body.uid) Object.assign(known, { uid: body.uid, state: null, offer: null, said: "", wrong: false, made: "", asking: null });
  draw(body);
  return place;
}

// The run was heard of, whether or not there is news of it: what may be done to it is asked when that is due.
export function heed(body) {
  if (known.uid === body.uid && (known.state !== body.state || performance.now() > known.due)) void look(body);
}

// Another page is looked at: nothing is asked any more about the run of the last one.
export function leave() {
  known.asking = null;
  document.querySelector("dialog")?.remove();
}

// Signed out: nothing of it is for whoever comes next.
export function forget() {
  Object.assign(known, { uid: "", offer: null, said: "", made: "" });
  leave();
}

function pathOf(body) {
  return `runs/${encodeURIComponent(body.namespace)}/${encodeURIComponent(body.name)}/actions`;
}

async function look(body) {
  Object.assign(known, { due: performance.now() + LOOK_AGAIN_SECONDS * 1000, state: body.state });
  try {
    const offer = await fetched(pathOf(body));
    if (offer.uid !== known.uid) return;
    known.offer = offer;
    draw(body);
  } catch (error) { // what is wrong is said where the page itself is asked for
    if (known.uid === body.uid) known.due = performance.now() + (error.retryAfter || 0) * 1000;
  }
}

function draw(body) {
  const all = known.offer?.actions ?? [];
  show(buttons,
    all.map(({ action }) => h("button", { type: "button", "data-key": `deed ${action}`, "data-action": action, "aria-disabled": known.asking ? "true" : null, onclick: () => confirm(body, action) }, `${TITLES[action]}${action === "checkpoint" ? "" : " …"}`)),
    known.offer?.logs && h("a", { href: `#/logs/${encodeURIComponent(body.namespace)}/${encodeURIComponent(body.name)}/0`, "data-key": "logs" }, "Logs"),
    h("a", { href: `#/compare/${encodeURIComponent(body.namespace)}/${encodeURIComponent(body.name)}`, "data-key": "compare" }, "Compare"),
  );
  const told = [known.uid, known.said, known.made].join(" ");
  if (said.dataset.told === told) return;
  said.dataset.told = told;
  said.className = known.wrong ? "notice" : "hint";
  show(said, known.said, known.made && [" ", runLink({ namespace: body.namespace, name: known.made }, "Look at it")]);
}

// What it costs is asked for anew: it may have been another a minute ago. `begin` says of a retry where it is to begin.
async function offerOf(body, action, begin = {}) {
  const offer = await fetched(`${pathOf(body)}?${new URLSearchParams(begin)}`);
  return offer.uid === body.uid ? offer.actions.find((each) => each.action === action) : null;
}

async function confirm(body, action) {
  if (known.asking) return; // pressed twice
  const own = known.asking = {};
  say(body, "", false);
  let offered;
  try {
    offered = await offerOf(body, action);
  } catch (error) {
    return answered(body, own, `${error.message}.`);
  }
  if (!answered(body, own, offered ? "" : GONE) || !offered) return;
  let begin = {};
  const costs = h("div", { "aria-live": "polite" }), choices = h("div", { class: "deeds" });
  const stay = h("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Leave it as it is");
  const tell = ({ words, name }) => { // the name of the run that a retry would make; empty where the words say why not
    show(costs, words.map((each) => h("p", {}, each)));
    show(choices, stay, name !== "" && h("button", {
      type: "button", class: action === "cancel" ? "danger" : "go",
      onclick: () => {
        dialog.close();
        void carryOut(body, action, { name, ...begin });
      },
    }, action === "checkpoint" ? TITLES[action] : `${TITLES[action]} the run`));
  };
  const choose = async (chosen) => {
    begin = chosen;
    tell({ words: ["…"], name: "" }); // nothing is confirmed before it was said
    if (chosen.step === "") return tell({ words: ["Which step?"], name: "" });
    let found;
    try {
      found = (await offerOf(body, action, chosen)) ?? { words: [GONE], name: "" };
    } catch (error) {
      found = { words: [`${error.message}.`], name: "" };
    }
    if (begin === chosen) tell(found);
  };
  const dialog = h("dialog", { "aria-labelledby": "deed-title", onclose: () => close(dialog, action) },
    h("h2", { id: "deed-title" }, `${TITLES[action]} ${body.namespace}/${body.name}?`),
    offered.begins && beginnings(choose), costs, choices);
  tell(offered);
  document.body.append(dialog);
  dialog.showModal();
}

// Whether what a press of a button asked for is still wanted: whoever has left the run is shown nothing of it.
function answered(body, own, problem) {
  if (known.asking !== own) return false;
  known.asking = null;
  say(body, problem, problem !== "");
  return true;
}

// The button that opened it was drawn anew meanwhile.
function close(dialog, action) {
  dialog.remove();
  buttons.querySelector(`[data-key="deed ${action}"]`)?.focus();
}

function beginnings(choose) {
  const step = h("input", { type: "number", min: "0", "aria-label": "step", oninput: () => {
    at.checked = true;
    void choose({ step: step.value });
  } });
  const radio = (key, begin) => h("input", { type: "radio", name: "begin", value: key, checked: key === "newest", onchange: () => void choose(begin()) });
  const at = radio("step", () => ({ step: step.value }));
  return h("fieldset", {}, h("legend", {}, "It begins"),
    h("label", {}, radio("newest", () => ({})), " at its newest checkpoint"),
    h("div", {}, h("label", {}, at, " at step "), step),
    h("label", {}, radio("fresh", () => ({ fresh: true })), " at step 0"),
  );
}

async function carryOut(body, action, { name, step, fresh }) {
  try {
    const wanted = { uid: body.uid, name, fresh, step: step === undefined ? undefined : Number(step) };
    const { message, made } = await act(`${pathOf(body)}/${action}`, wanted);
    say(body, `${message}; the operator does the rest.`, false, made);
  } catch (error) {
    say(body, `${error.message}.`, true);
  }
  if (known.uid === body.uid) known.due = 0;
}

function say(body, words, wrong, made = "") {
  if (known.uid !== body.uid) return;
  Object.assign(known, { said: words, wrong, made });
  draw(body);
}
