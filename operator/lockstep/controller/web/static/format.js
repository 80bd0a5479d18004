// Words for numbers, as the command line writes them.

export function duration(seconds) {
  const left = Math.max(0, Math.floor(seconds));
  const [minutes, hours, days] = [Math.floor(left / 60), Math.floor(left / 3600), Math.floor(left / 86400)];
  if (left < 120) return `${left}s`;
  if (minutes < 10) return left % 60 ? `${minutes}m${left % 60}s` : `${minutes}m`;
  if (hours < 3) return `${minutes}m`;
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  if (days < 8) return hours % 24 ? `${days}d${hours % 24}h` : `${days}d`;
  return `${days}d`;
}

// Unix seconds of what the API writes: seconds, or RFC 3339.
export function unix(moment) {
  return typeof moment === "string" ? Date.parse(moment) / 1000 : moment;
}

export function ago(moment, now) {
  return moment === null || moment === undefined ? "" : `${duration(now - unix(moment))} ago`;
}

const ZONE = new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset" });

// The time of this browser, and how far it is from UTC: who looks and who is asked may be in different places.
export function local(moment) {
  const at = new Date(unix(moment) * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const zone = ZONE.formatToParts(at).find((part) => part.type === "timeZoneName").value.replace("GMT", "UTC");
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())} ${zone}`;
}

// A measured value in four digits: what comes after them says nothing to people.
export function figure(value) {
  const number = Number(value);
  return value === "" || value === null || value === undefined || Number.isNaN(number) ? String(value ?? "") : String(Number(number.toPrecision(4)));
}

// When the last step of a run is done: with its spread, in the words of the command line, else by its pace alone.
export function allDone(run) {
  return run.completion || (run.measured.left ? `in about ${duration(run.measured.left)}` : "");
}

// Short times, where whole seconds would be 0.
export function seconds(number) {
  return number < 10 ? `${Number(number.toPrecision(2))} s` : duration(number);
}

export function count(number) {
  return number.toLocaleString("en");
}

export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

export function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

export function bytes(number) {
  if (!number) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  const rounded = (power) => (number / 1024 ** power).toFixed(power ? 1 : 0);
  let power = Math.min(units.length - 1, Math.floor(Math.log2(number) / 10));
  if (Number(rounded(power)) >= 1024 && power < units.length - 1) power += 1; // 1024.0 KiB is a MiB
  return `${rounded(power)} ${units[power]}`;
}
