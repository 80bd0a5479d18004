// What the operator answers. The token is kept for this tab alone, and goes nowhere but to where the page came from.

const KEY = "lockstep-token";
const known = new Map(); // path -> {tag, body}
export const server = { role: "", skew: 0 };

export class Refusal extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export class Unanswered extends Error {}

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  keep: (text) => sessionStorage.setItem(KEY, text),
  forget: () => {
    sessionStorage.removeItem(KEY);
    known.clear();
  },
};

// Seconds since 1970 on the operator's clock.
export function now() {
  return Date.now() / 1000 + server.skew;
}

// The answer, and whether it is another than the last time. Throws Refusal, or Unanswered where nobody answers.
export async function ask(path, signal) {
  const last = known.get(path);
  const headers = {};
  if (token.get()) headers["X-Lockstep-Token"] = token.get();
  if (last) headers["If-None-Match"] = last.tag;
  const response = await heard(fetch(`api/${path}`, { headers, signal, cache: "no-store", credentials: "omit" }));
  server.role = response.headers.get("X-Lockstep-Role") ?? server.role;
  const time = Number(response.headers.get("X-Lockstep-Time"));
  if (time) server.skew = time - Date.now() / 1000;
  if (response.status === 304 && last) return { body: last.body, changed: false };
  if (!response.ok) throw new Refusal(response.status, await words(response), Number(response.headers.get("Retry-After")));
  const body = await heard(response.json());
  known.clear(); // one page is looked at, and only its last answer is worth keeping
  known.set(path, { tag: response.headers.get("ETag"), body });
  return { body, changed: true };
}

// An answer that is not kept. Throws as ask does.
export async function fetched(path, signal) {
  return (await answered(path, { signal })).json();
}

// What comes as it comes.
export async function streamed(path, signal) {
  return (await answered(path, { signal })).body.getReader();
}

// Something is done to a run. The header is one that no other site can have this browser send.
export async function act(path, body) {
  const headers = { "X-Lockstep-Deed": "1", "Content-Type": "application/json" };
  return (await answered(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

async function answered(path, { headers = {}, ...options }) {
  const own = token.get() ? { "X-Lockstep-Token": token.get() } : {};
  const response = await heard(fetch(`api/${path}`, { ...options, headers: { ...headers, ...own }, cache: "no-store", credentials: "omit" }));
  if (!response.ok) throw new Refusal(response.status, await words(response), Number(response.headers.get("Retry-After")));
  return response;
}

async function heard(promise) {
  try {
    return await promise;
  } catch (error) {
    throw error.name === "AbortError" ? error : new Unanswered(error.message);
  }
}

async function words(response) {
  try {
    return (await response.json()).message;
  } catch {
    return `the operator answered ${response.status}`;
  }
}
