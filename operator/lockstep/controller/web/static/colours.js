// A colour for each run, and a pattern for each state: neither alone has to be told from all others.

// Told apart with the usual kinds of colour blindness where few are on screen; a number is on each run as well.
const RUNS = [
  "#4477aa", "#ee7733", "#228833", "#aa3377", "#4db8d8", "#bbaa33", "#d9536a", "#00897b", "#7a5195", "#8a7a2f",
  "#5c86c5", "#b8582e",
];

export function runColour(index) {
  return RUNS[index % RUNS.length];
}

// Black or white, whichever can be read on `colour`.
export function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.3 ? "#111" : "#fff";
}

export function themed() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return { ink: of("ink"), muted: of("muted"), line: of("line"), panel: of("panel"), bad: of("bad"), warn: of("warn"), busy: of("busy"), accent: of("accent") };
}

// What one node looks like: a square of `size` at x, y.
export function drawNode(pen, x, y, size, look, theme) {
  const thin = Math.max(1, size / 12);
  const { fill, ring, state, number } = look;
  pen.lineWidth = thin;
  if (fill && !ring) {
    pen.fillStyle = fill;
    pen.fillRect(x, y, size, size);
  } else if (fill) {
    const wide = Math.max(1.5, size / 5);
    pen.lineWidth = wide;
    pen.strokeStyle = fill;
    pen.strokeRect(x + wide / 2, y + wide / 2, size - wide, size - wide);
    pen.lineWidth = thin;
  } else {
    pen.strokeStyle = theme.line;
    pen.strokeRect(x + thin / 2, y + thin / 2, size - thin, size - thin);
  }
  if (look.dots) {
    pen.fillStyle = theme.muted;
    for (const [dx, dy] of [[0.3, 0.3], [0.7, 0.7]]) pen.fillRect(x + dx * size - thin, y + dy * size - thin, 2 * thin, 2 * thin);
  }
  if (number && size >= 15 && state === "Ready") {
    pen.fillStyle = ring ? theme.ink : inkOn(fill);
    pen.font = `${Math.round(size * 0.5)}px ui-monospace, monospace`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(number, x + size / 2, y + size / 2 + 0.5);
  }
  PATTERNS[state]?.(pen, x, y, size, theme, fill && !ring ? inkOn(fill) : theme.ink);
}

function strokes(pen, colour, width, ...lines) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  for (const [x1, y1, x2, y2] of lines) {
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
  }
  pen.stroke();
}

const PATTERNS = {
  NotReady(pen, x, y, s, theme) {
    pen.fillStyle = theme.bad;
    pen.fillRect(x, y, s, s);
    const e = s * 0.24;
    strokes(pen, theme.panel, Math.max(1.2, s / 8), [x + e, y + e, x + s - e, y + s - e], [x + s - e, y + e, x + e, y + s - e]);
  },
  Unhealthy(pen, x, y, s, theme) {
    pen.fillStyle = theme.bad;
    pen.beginPath();
    pen.moveTo(x + s, y);
    pen.lineTo(x + s, y + s * 0.72);
    pen.lineTo(x + s * 0.28, y);
    pen.fill();
    strokes(pen, theme.panel, Math.max(1, s / 14), [x + s, y + s * 0.72, x + s * 0.28, y]);
  },
  Draining(pen, x, y, s, theme, ink) {
    strokes(pen, ink, Math.max(1, s / 10), [x, y + s * 0.5, x + s * 0.5, y], [x, y + s, x + s, y], [x + s * 0.5, y + s, x + s, y + s * 0.5]);
  },
  Cordoned(pen, x, y, s, theme, ink) {
    strokes(pen, ink, Math.max(1.2, s / 7), [x + s * 0.2, y + s / 2, x + s * 0.8, y + s / 2]);
  },
  Suspect(pen, x, y, s, theme, ink) {
    pen.fillStyle = ink;
    pen.beginPath();
    pen.arc(x + s / 2, y + s / 2, Math.max(1.2, s / 6), 0, 2 * Math.PI);
    pen.fill();
  },
};

// A small canvas with one node on it, for legends.
export function swatch(look, theme, size = 14) {
  const canvas = document.createElement("canvas");
  const ratio = devicePixelRatio || 1;
  canvas.width = canvas.height = size * ratio;
  canvas.className = "swatch";
  canvas.setAttribute("aria-hidden", "true");
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  drawNode(pen, 0, 0, size, look, theme);
  return canvas;
}
