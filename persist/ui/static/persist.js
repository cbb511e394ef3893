// What the pages do beside what the server wrote: instants in the reader's zone, pages that keep up, questions before what cannot be
// undone, and text that comes in live. Without it everything but the last still works.

const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const steps = [[31536000, "y"], [86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** How long ago an instant is, in the words of the server. */
function ago(at) {
  const seconds = (Date.now() - at) / 1000;
  const [length, word] = steps.find(([length]) => Math.abs(seconds) >= length) ?? [1, "s"];
  const count = Math.floor(Math.abs(seconds) / length);
  if (!count) return "now";
  const words = `${count.toLocaleString("en-US")} ${word}`;
  return seconds > 0 ? `${words} ago` : `in ${words}`;
}

/** Say the exact instants of an element in the reader's zone, and the relative ones as of now. */
function tellTimes(within) {
  for (const time of within.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    time.title = zone.format(at);
    time.textContent = "exact" in time.dataset ? time.title : ago(at);
  }
}

/** Fetch a page and return its main element, or null where it cannot be had. */
async function mainOf(address) {
  try {
    const answer = await fetch(address, { credentials: "same-origin", headers: { Accept: "text/html" } });
    if (!answer.ok) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  } catch {
    return null; // the server is away: the next look may find it
  }
}

/** Put what a new look at the page says in the place of the old one, unless the reader is busy there. */
async function refresh(main) {
  const busy = document.activeElement && main.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");
  if (document.hidden || busy || !document.getSelection().isCollapsed || main.querySelector("form [data-touched]")) return;
  const fresh = await mainOf(location.href);
  if (!fresh || fresh.innerHTML === main.dataset.seen) return;
  const open = [...main.querySelectorAll("details")].map((one) => one.open);
  main.dataset.seen = fresh.innerHTML;
  main.replaceChildren(...fresh.childNodes);
  const details = main.querySelectorAll("details");
  if (details.length === open.length) details.forEach((one, place) => { one.open = open[place]; });
  tellTimes(main);
}

/** Keep a page that says so up to date, while somebody can see it. */
function keepUp(main) {
  const every = Number(main.dataset.refresh);
  if (every) setInterval(() => refresh(main), every * 1000);
}

/** Add the rows that a stream tells, which the server made as HTML, at the end of an element, or where it says so at its beginning. */
function liveRows(rows) {
  const first = rows.dataset.at === "first";
  const most = Number(rows.dataset.most) || 500;
  const source = new EventSource(rows.dataset.liveRows);
  source.addEventListener("rows", (event) => {
    const made = document.createElement("template");
    made.innerHTML = JSON.parse(event.data);
    tellTimes(made.content);
    const atEnd = window.innerHeight + window.scrollY > document.documentElement.scrollHeight - 150;
    if (first) rows.prepend(made.content);
    else rows.append(made.content);
    while (rows.childElementCount > most) (first ? rows.lastElementChild : rows.firstElementChild).remove();
    if (!first && atEnd) window.scrollTo(0, document.documentElement.scrollHeight);
  });
}

// A chat that is looked at while it is written. The server tells which text comes and what else has changed; what has changed is
// fetched as the server renders it. Each text knows how many characters it has, so none comes twice and none is missed.

const harmful = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** Text whose every character is seen, as the server shows it. */
function visible(text) {
  return text.replace(harmful, (one) => {
    const code = one.charCodeAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** A function that runs the given one soon: never twice at a time, and once more if it was asked for meanwhile. */
function soon(work, pause) {
  let asked = false, busy = false;
  return async function ask() {
    asked = true;
    if (busy) return;
    busy = true;
    while (asked) {
      asked = false;
      await work();
      await new Promise((done) => setTimeout(done, pause));
    }
    busy = false;
  };
}

/** Whether the end of the page is in sight: then it stays so while text comes. */
function atEnd() {
  return window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 80;
}

/** Put an element in the place of another one, keeping what the reader has unfolded. */
function replace(old, fresh) {
  const known = new Map([...old.querySelectorAll("[data-place] > details")].map((one) => [one.parentElement.dataset.place, one.open]));
  for (const one of fresh.querySelectorAll("[data-place] > details")) {
    const open = known.get(one.parentElement.dataset.place);
    if (open !== undefined) one.open = open;
  }
  tellTimes(fresh);
  old.replaceWith(fresh);
}

/** What an element says, whenever it was said and whatever the reader has unfolded. */
function saying(element) {
  const copy = element.cloneNode(true);
  for (const one of copy.querySelectorAll("time")) one.replaceWith(one.dateTime);
  for (const one of copy.querySelectorAll("details")) one.open = false;
  return copy.outerHTML;
}

/** The elements within another one by the text of one of their data attributes: ids may hold anything, selectors may not. */
function byData(within, name) {
  return new Map([...within.querySelectorAll(`[data-${name}]`)].map((one) => [one.dataset[name], one]));
}

/** Follow the chat that a transcript shows. */
function followChat(transcript) {
  const follows = document.querySelector("[data-follows]");
  const say = (words) => { if (follows.textContent !== words) follows.textContent = words; };
  let last = "", source = null, wait = 2000, opened = false;

  const stay = (change) => {
    const end = atEnd();
    change();
    if (end) window.scrollTo(0, document.documentElement.scrollHeight);
  };

  const page = soon(async () => {
    const fresh = await mainOf(location.href);
    if (!fresh) return;
    const now = byData(document, "fresh"), then = byData(fresh, "fresh");
    for (const [name, one] of then) if (now.has(name)) replace(now.get(name), one);
    const shown = byData(transcript, "message"), listed = byData(fresh, "message");
    stay(() => {
      let place = null;
      for (const [id, one] of listed) {
        const old = shown.get(id);
        if (!one.closest(".transcript")) continue;
        if (!old) {
          tellTimes(one);
          place ? place.after(one) : transcript.prepend(one);
          place = one;
        } else if (saying(old) !== saying(one)) {
          replace(old, one);
          place = one;
        } else {
          place = old;
        }
      }
      for (const [id, old] of shown) if (!listed.has(id)) old.remove();
    });
  }, 250);

  const stale = new Set();
  const messages = soon(async () => {
    const wanted = [...stale];
    stale.clear();
    for (const id of wanted) {
      const old = byData(transcript, "message").get(id);
      if (!old) {
        page();
        continue;
      }
      const main = await mainOf(old.querySelector("header a").href);
      const fresh = main && byData(main, "message").get(id);
      if (fresh) stay(() => replace(byData(transcript, "message").get(id) ?? old, fresh));
    }
  }, 150);
  const fetchMessage = (id) => {
    stale.add(id);
    messages();
  };

  const grow = ({ message, place, kind, delta, upto }) => {
    const article = byData(transcript, "message").get(message);
    if (!article) return page();
    const pieces = [...delta];
    let part = byData(article, "place").get(String(place));
    if (!part && upto === pieces.length && kind === "text") {
      part = document.createElement("div");
      part.className = "part part-text";
      part.dataset.place = place;
      part.dataset.at = 0;
      const text = document.createElement("div");
      text.className = "grows live";
      text.dataset.text = kind;
      part.append(text);
      article.append(part);
    }
    const text = part?.querySelector("[data-text]"), missing = part ? upto - Number(part.dataset.at) : Infinity;
    if (part && missing <= 0) return undefined;
    if (!text || missing > pieces.length) return fetchMessage(message);
    stay(() => text.append(visible(pieces.slice(-missing).join(""))));
    part.dataset.at = upto;
    return undefined;
  };

  const on = {
    start: ({ message }) => { byData(transcript, "message").has(message) ? fetchMessage(message) : page(); },
    text: grow,
    part: ({ message }) => fetchMessage(message),
    over: ({ message }) => {
      if (message !== null) fetchMessage(message);
      page();
    },
  };

  const open = () => {
    const address = new URL(transcript.dataset.live, location.href);
    if (last) address.searchParams.set("after", last);
    source = new EventSource(address);
    source.addEventListener("open", () => {
      if (opened) page(); // what happened while nobody told
      opened = true;
      wait = 2000;
      say("This page follows the chat.");
    });
    for (const [name, told] of Object.entries(on)) {
      source.addEventListener(name, (event) => {
        last = event.lastEventId;
        told(JSON.parse(event.data));
      });
    }
    source.addEventListener("error", () => {
      say("The server is away; this page looks for it.");
      if (source.readyState !== EventSource.CLOSED) return;
      wait = Math.min(wait * 2, 60000);
      setTimeout(open, wait);
    });
  };
  window.addEventListener("pagehide", () => source.close());
  window.addEventListener("pageshow", (event) => { if (event.persisted) open(); });
  open();
}

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});
document.addEventListener("input", (event) => { event.target.dataset.touched = ""; });

const main = document.querySelector("main");
const transcript = document.querySelector(".transcript[data-live]");
tellTimes(document);
keepUp(main);
for (const rows of document.querySelectorAll("[data-live-rows]")) liveRows(rows);
if (transcript) followChat(transcript);
setInterval(() => tellTimes(document), 10000);
