// What may be done to a run, by whoever may: with the viewer's own token, and after it was said what it costs.

import { act, fetched } from "./api.js";
import { h, runLink, show } from "./dom.js";

const LOOK_AGAIN_SECONDS = 30;
const TITLES = { checkpoint: "Save now", suspend: "Suspend", resume: "Resume", cancel: "Cancel", retry: "Retry" };
const GONE = "That makes no sense for it now, or you may not do it any more.";
const known = { uid: "", state: "", at: 0, offer: null, said: "", wrong: false, made: "" };

// Buttons for the run that is shown. They are there as soon as it is known what this viewer may.
export function bar(body) {
  const place = h("div", { class: "deeds" });
  if (known.uid !== body.uid) Object.assign(known, { uid: body.uid, offer: null, said: "", wrong: false, made: "", at: 0 });
  draw(place, body);
  if (known.state !== body.state || performance.now() - known.at > LOOK_AGAIN_SECONDS * 1000) void look(place, body);
  return place;
}

// Signed out: nothing of it is for whoever comes next.
export function forget() {
  Object.assign(known, { uid: "", offer: null, said: "", made: "" });
  document.querySelector("dialog")?.remove();
}

function pathOf(body) {
  return `runs/${encodeURIComponent(body.namespace)}/${encodeURIComponent(body.name)}/actions`;
}

async function look(place, body) {
  Object.assign(known, { at: performance.now(), state: body.state });
  try {
    const offer = await fetched(pathOf(body));
    if (offer.uid !== known.uid) return;
    known.offer = offer;
  } catch {
    known.at = 0; // what is wrong is said where the page itself is asked for
    return;
  }
  const shown = place.isConnected ? place : document.querySelector(".deeds");
  if (shown) draw(shown, body);
}

function draw(place, body) {
  const all = known.offer?.actions ?? [];
  show(place,
    all.map(({ action }) => h("button", { type: "button", "data-key": `deed ${action}`, "data-action": action, onclick: () => confirm(body, action) }, `${TITLES[action]}${action === "checkpoint" ? "" : " …"}`)),
    known.offer?.logs && h("a", { href: `#/logs/${encodeURIComponent(body.namespace)}/${encodeURIComponent(body.name)}/0`, "data-key": "logs" }, "Logs"),
    h("a", { href: `#/compare/${encodeURIComponent(body.namespace)}/${encodeURIComponent(body.name)}`, "data-key": "compare" }, "Compare"),
    h("span", { role: "status", id: "deed-said", class: known.wrong ? "notice" : "hint" }, known.said,
      known.made && [" ", runLink({ namespace: body.namespace, name: known.made }, "Look at it")]),
  );
}

// What it costs is asked for anew: it may have been another a minute ago. `begin` says of a retry where it is to begin.
async function offerOf(body, action, begin = {}) {
  const offer = await fetched(`${pathOf(body)}?${new URLSearchParams(begin)}`);
  return offer.uid === body.uid ? offer.actions.find((each) => each.action === action) : null;
}

async function confirm(body, action) {
  say(body, "", false);
  let offered;
  try {
    offered = await offerOf(body, action);
  } catch (error) {
    return say(body, `${error.message}.`, true);
  }
  if (!offered) return say(body, GONE, true);
  let begin = {};
  const costs = h("div", { "aria-live": "polite" }), buttons = h("div", { class: "deeds" });
  const leave = h("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Leave it as it is");
  const tell = ({ words, name }) => { // the name of the run that a retry would make; empty where the words say why not
    show(costs, words.map((each) => h("p", {}, each)));
    show(buttons, leave, name !== "" && h("button", {
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
  const dialog = h("dialog", { "aria-labelledby": "deed-title", onclose: () => dialog.remove() },
    h("h2", { id: "deed-title" }, `${TITLES[action]} ${body.namespace}/${body.name}?`),
    offered.begins && beginnings(choose), costs, buttons);
  tell(offered);
  document.body.append(dialog);
  dialog.showModal();
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
  known.at = 0;
}

function say(body, words, wrong, made = "") {
  Object.assign(known, { said: words, wrong, made });
  const place = document.querySelector(".deeds");
  if (place && known.uid === body.uid) draw(place, body);
}
