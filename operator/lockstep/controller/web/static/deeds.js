// What may be done to a run, by whoever may: with the viewer's own token, and after it was said what it costs.

import { act, fetched } from "./api.js";
import { h, runLink, show } from "./dom.js";

const LOOK_AGAIN_SECONDS = 30;
const TITLES = { checkpoint: "Save now", suspend: "Suspend", resume: "Resume", cancel: "Cancel", retry: "Retry" };
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

// What it costs is asked for anew: it may have been another a minute ago.
async function confirm(body, action) {
  say(body, "", false);
  let offered;
  try {
    const offer = await fetched(pathOf(body));
    offered = offer.uid === body.uid ? offer.actions.find((each) => each.action === action) : null;
  } catch (error) {
    return say(body, `${error.message}.`, true);
  }
  if (!offered) return say(body, "That makes no sense for it now, or you may not do it any more.", true);
  const { words, name } = offered; // of the run that a retry would make; empty where the words say why not
  const title = `${TITLES[action]} ${body.namespace}/${body.name}?`;
  const dialog = h("dialog", { "aria-labelledby": "deed-title", onclose: () => dialog.remove() },
    h("h2", { id: "deed-title" }, title),
    words.map((each) => h("p", {}, each)),
    h("div", { class: "deeds" },
      h("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, "Leave it as it is"),
      name !== "" && h("button", {
        type: "button", class: action === "cancel" ? "danger" : "go",
        onclick: () => {
          dialog.close();
          void carryOut(body, action, name);
        },
      }, action === "checkpoint" ? TITLES[action] : `${TITLES[action]} the run`)),
  );
  document.body.append(dialog);
  dialog.showModal();
}

async function carryOut(body, action, name) {
  try {
    const { message, made } = await act(`${pathOf(body)}/${action}`, { uid: body.uid, name });
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
