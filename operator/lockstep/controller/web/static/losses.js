// Values over steps: the loss of a run, of several beside each other, and how fast they train.

import { h, svg } from "./dom.js";
import { count, figure } from "./format.js";

const [WIDE, TALL, LEFT, RIGHT, TOP, BOTTOM] = [640, 220, 52, 26, 8, 20];
const TWO_DECADES = 100;

// What a viewer chose or read last stays when the chart is drawn anew, as it is every few seconds.
const scales = new Map(); // key -> whether its axis is logarithmic
const readings = new Map(); // key -> {name, step, attempt}

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough);
  const first = Math.ceil(low / step);
  const found = [];
  // Counted, as a sum need not grow: beside a large number a step may be less than what that is exact to.
  for (let i = 0; i <= wanted && (first + i) * step <= high + step / 1e6; i++) {
    const value = Number(((first + i) * step).toPrecision(12));
    if (value !== found.at(-1)) found.push(value);
  }
  return found;
}

// Powers of ten, no more than can be read; of less than two decades 2 and 5 times those as well.
function decades(low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const every = Math.max(1, Math.ceil((last - first) / 6));
  const factors = high / low < TWO_DECADES ? [1, 2, 5] : [1];
  const found = [];
  for (let power = first; power <= last; power += every) found.push(...factors.map((factor) => Number(`${factor}e${power}`)));
  const seen = found.filter((value) => value >= low && value <= high);
  return seen.length > 1 ? seen : [low, high].map((value) => Number(value.toPrecision(2)));
}

// A figure of `series`, {name, step, value, attempt} each; a value that is null is no number. A line goes back where the
// training did; earlier attempts are paler. `what` is what the values are, `key` tells one figure from another.
export function curves(series, key, what) {
  const all = series.filter((each) => each.step.length);
  const numbers = all.flatMap((each) => each.value.filter((value) => value !== null));
  if (!numbers.length) return h("p", { class: "notice" }, `Every ${what.toLowerCase()} that was reported is no number.`);
  const [least, most] = [numbers.reduce((a, b) => Math.min(a, b)), numbers.reduce((a, b) => Math.max(a, b))];
  const positive = least > 0;
  const log = positive && (scales.get(key) ?? most / least > TWO_DECADES);
  const steps = all.flatMap((each) => each.step);
  const frame = framed(steps, least, most, log);
  const { x, y, chart } = frame;
  const [first, last] = [frame.x0, frame.x1];
  const whose = all.length === 1 ? `; the last is ${figure(numbers.at(-1))}` : ` of ${all.map((each) => each.name).join(", ")}`;
  const attributes = { role: "img", tabindex: 0, "data-key": `chart ${key}`, "data-scale": log ? "log" : "linear", "aria-label": `${what} from step ${first} to ${last}${whose}. Arrow keys read single points.` };
  for (const [name, value] of Object.entries(attributes)) chart.setAttribute(name, value);
  for (const each of all) chart.append(...lines(each, x, y, `s${series.indexOf(each)}`));
  const dot = svg("circle", { r: 3.5, class: "dot", visibility: "hidden" });
  chart.append(dot);
  const toggle = positive && least < most && h("button", {
    type: "button", class: "small", "aria-pressed": String(log), "data-key": `scale ${key}`,
    onclick: () => {
      scales.set(key, !log);
      const other = curves(series, key, what);
      made.replaceWith(other);
      other.querySelector("button")?.focus();
    },
  }, "log scale");
  const made = h("figure", { class: "curves" }, chart, h("div", { class: "under" }, reading(chart, dot, all, x, y, key, what), toggle));
  return made;
}

function framed(steps, least, most, log) {
  const [x0, x1] = [steps.reduce((a, b) => Math.min(a, b)), steps.reduce((a, b) => Math.max(a, b))];
  const on = log ? Math.log10 : (value) => value;
  const spread = on(most) - on(least) || (log ? 0.2 : Math.abs(most) / 10 || 1);
  const [y0, y1] = [on(least) - 0.05 * spread, on(most) + 0.05 * spread];
  const x = (value) => LEFT + ((WIDE - LEFT - RIGHT) * (value - x0)) / Math.max(1, x1 - x0);
  const y = (value) => TOP + (TALL - BOTTOM - TOP) * (1 - (on(value) - y0) / (y1 - y0));
  const chart = svg("svg", { class: "loss", viewBox: `0 0 ${WIDE} ${TALL}` });
  const power = (of) => Math.min(Number.MAX_VALUE, Math.max(Number.MIN_VALUE, 10 ** of));
  for (const value of log ? decades(power(y0), power(y1)) : ticks(y0, y1, 4)) {
    chart.append(svg("line", { x1: LEFT, x2: WIDE - RIGHT, y1: y(value), y2: y(value), class: "grid" }), svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, figure(value)));
  }
  for (const value of ticks(x0, x1, 5)) chart.append(svg("text", { x: x(value), y: TALL - 4, "text-anchor": "middle" }, count(value)));
  return { x0, x1, x, y, chart };
}

function lines({ name, step, value, attempt }, x, y, kind) {
  const last = attempt.at(-1);
  const drawn = [];
  let joined = []; // indices
  const end = () => {
    const [first] = joined;
    if (first === undefined) return;
    const look = attempt[first] === last ? `line ${kind}` : `line earlier ${kind}`;
    const path = joined.map((i) => `${x(step[i]).toFixed(1)} ${y(value[i]).toFixed(1)}`).join("L");
    // A line of one point cannot be seen.
    drawn.push(joined.length > 1 ? svg("path", { d: `M${path}`, class: look }) : svg("circle", { cx: x(step[first]), cy: y(value[first]), r: 2, class: look }));
    joined = [];
  };
  for (let i = 0; i < step.length; i++) {
    if (i && attempt[i] !== attempt[i - 1]) end();
    if (value[i] !== null) joined.push(i);
    else {
      end();
      drawn.push(svg("line", { x1: x(step[i]), x2: x(step[i]), y1: TOP, y2: TALL - BOTTOM, class: "nan" }, svg("title", {}, `${name ? `${name}, ` : ""}step ${step[i]}: no number`)));
    }
  }
  end();
  return drawn;
}

// The point under the pointer, or the one that the arrow keys lead to, in words; of several runs what each had there.
function reading(chart, dot, all, x, y, key, what) {
  const main = all[0];
  const last = readings.get(key);
  const known = last ? main.step.findIndex((each, i) => each === last.step && main.attempt[i] === last.attempt) : -1;
  let chosen = known < 0 ? main.step.length - 1 : known;
  const words = h("figcaption", { "aria-live": "polite" });
  const say = () => {
    const at = main.step[chosen];
    const told = all.length === 1
      ? `${what.toLowerCase()} ${named(main.value[chosen])}, attempt ${main.attempt[chosen]}`
      : all.map((each) => `${each.name} ${named(each.value[nearest(each.step, at)])}`).join("; ");
    words.textContent = `step ${count(at)}, ${told}`;
    dot.setAttribute("visibility", main.value[chosen] === null ? "hidden" : "visible");
    dot.setAttribute("cx", x(at));
    dot.setAttribute("cy", main.value[chosen] === null ? 0 : y(main.value[chosen]));
  };
  const keep = () => {
    readings.set(key, { step: main.step[chosen], attempt: main.attempt[chosen] });
    say();
  };
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * WIDE;
    chosen = main.step.reduce((best, value, i) => (Math.abs(x(value) - place) <= Math.abs(x(main.step[best]) - place) ? i : best), 0);
    keep();
  });
  chart.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    chosen = Math.min(main.step.length - 1, Math.max(0, chosen + by));
    keep();
  });
  say();
  return words;
}

function named(value) {
  return value === null ? "NaN" : figure(value);
}

function nearest(steps, wanted) {
  return steps.reduce((best, step, i) => (Math.abs(step - wanted) <= Math.abs(steps[best] - wanted) ? i : best), 0);
}

// Columns of an answer as one series of losses.
export function lossOf({ step, loss, attempt }, name = "") {
  return { name, step, value: loss, attempt };
}

// Steps a second: between each point and one of the same attempt long enough before it not to be a matter of rounding.
export function rateOf({ step, at, attempt }, name = "") {
  const found = { name, step: [], value: [], attempt: [] };
  const apart = Math.max(10, (at.at(-1) - at[0]) / 50 || 0);
  let from = 0;
  for (let i = 1; i < step.length; i++) {
    if (attempt[i] !== attempt[from]) from = i;
    while (from + 1 < i && at[i] - at[from + 1] >= apart) from += 1;
    if (at[i] - at[from] < 1 || step[i] <= step[from]) continue;
    found.step.push(step[i]);
    found.value.push((step[i] - step[from]) / (at[i] - at[from]));
    found.attempt.push(attempt[i]);
  }
  return found;
}
