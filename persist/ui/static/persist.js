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

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});
document.addEventListener("input", (event) => { event.target.dataset.touched = ""; });

const main = document.querySelector("main");
tellTimes(document);
keepUp(main);
for (const rows of document.querySelectorAll("[data-live-rows]")) liveRows(rows);
setInterval(() => tellTimes(document), 10000);
