// Elements from data. Text is always a text node: nothing that a cluster says is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Show `children` in `root`. What had the focus keeps it where something of the same `data-key` is there again, and a
// wide table stays where it was moved to.
export function show(root, ...children) {
  const key = root.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const moved = [...root.querySelectorAll(".scroll")].map((each) => [each.firstChild.ariaLabel, each.scrollLeft]).filter(([, left]) => left);
  root.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const [label, left] of moved) {
    const table = root.querySelector(`.scroll > [aria-label="${CSS.escape(label)}"]`);
    if (table) table.parentElement.scrollLeft = left;
  }
  if (key) root.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

export function section(title, ...content) {
  return h("section", {}, h("h2", {}, title), ...content);
}

// A table; `columns` are [title, class] pairs, cells strings or nodes. On narrow screens its rows are drawn as blocks, of
// which the roles say that they are still a table.
export function table(columns, rows, label) {
  const head = h("tr", { role: "row" }, columns.map(([title, kind]) => h("th", { scope: "col", role: "columnheader", class: kind }, title)));
  const body = rows.map((row) =>
    h("tr", { role: "row", class: row.kind }, row.cells.map((cell, i) => h("td", { role: "cell", class: columns[i][1], "data-label": columns[i][0] }, cell ?? ""))),
  );
  const made = h("table", { role: "table", "aria-label": label }, h("thead", { role: "rowgroup" }, head), h("tbody", { role: "rowgroup" }, body));
  return h("div", { class: "scroll" }, made);
}

export function runLink(run, text) {
  const href = `#/runs/${encodeURIComponent(run.namespace)}/${encodeURIComponent(run.name)}`;
  return h("a", { href, "data-key": href }, text ?? `${run.namespace}/${run.name}`);
}

export function arrayLink(namespace, name, text) {
  const href = `#/arrays/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  return h("a", { href, "data-key": `${href} ${text}` }, text);
}

const MOODS = {
  Running: "good", Succeeded: "good", Failed: "bad", Recovering: "warn", Stopping: "warn", Launching: "busy",
};

export function badge(state) {
  return h("span", { class: `badge ${MOODS[state] ?? "idle"}` }, state || "Pending");
}
