// Numbers, times and names as people read them.

const numbers = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export function count(n) {
  return numbers.format(n);
}

/** "1 leader", "2 leaders". */
export function counted(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** The time of day, with the day where it is another one. */
export function time(ms) {
  const at = new Date(ms);
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? clock.format(at) : `${day.format(at)} ${clock.format(at)}`;
}

const two = (n) => String(n).padStart(2, "0");

/** A time span in its two greatest units, always equally long within one range. */
export function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 60) return `${m}m ${two(s % 60)}s`;
  const h = Math.floor(m / 60);
  if (h < 24) return `${h}h ${two(m % 60)}m`;
  return `${Math.floor(h / 24)}d ${two(h % 24)}h`;
}

/** A short time span, such as a lateness. */
export function shortSpan(ms) {
  if (ms < 1) return "<1 ms";
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

// Controls, and characters that turn the text around or take no room.
const unseen = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A name with what would not be seen written out: two names that differ look different. */
export function visible(name) {
  return name.replace(unseen, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** Words of the gateway as a sentence. */
export function sentence(words) {
  return `${words.replace(/^./, (first) => first.toUpperCase())}.`;
}

/** A word of a POSIX shell; null for a name that is no text to type. */
export function quoted(name) {
  if (visible(name) !== name) return null;
  return /^[\w@%+=:,./][\w@%+=:,./-]*$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}
